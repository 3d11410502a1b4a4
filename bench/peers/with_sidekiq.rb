# Sidekiq's side of the bench: `.bench/sidekiq/ruby bench/peers/with_sidekiq.rb MEASURE OPTIONS` prints its figures as
# one line of JSON. Best documented settings: ten threads (its default), as many as jobs where they wait side by side,
# hiredis, no line in the log for each job, many jobs by push_bulk. It takes a job out before running it.

require "json"
require "logger"
require "sidekiq"
require "sidekiq/launcher"
require "hiredis"

THREADS = 10
CHUNK = 5_000 # jobs per push_bulk when a backlog is laid out
WARM = 5 # the first jobs pay for what is done once only
CALM_S = 0.02 # between two jobs, so that the worker is asleep again
SETTLED_S = 10 # longest wait for what the server does on the side

# Counts the jobs that have run in any thread, and tells when they are as many as awaited.
class Countdown
  def initialize
    @lock = Mutex.new
    @over = Queue.new
    @left = 0
  end

  def expect(jobs)
    @left = jobs
  end

  def count
    @lock.synchronize { @over << now_s if (@left -= 1).zero? }
  end

  # When the last one ran.
  def wait
    @over.pop
  end
end

RUN = Countdown.new

class Noop
  include Sidekiq::Worker

  def perform(*)
    RUN.count
  end
end

class Nap
  include Sidekiq::Worker

  def perform(seconds)
    sleep(seconds)
    RUN.count
  end
end

class Stamp
  include Sidekiq::Worker

  # The monotonic clock is one for all processes.
  def perform(sent_ns)
    $stdout.puts(Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - sent_ns)
    $stdout.flush
  end
end

def now_s
  Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

def info(section)
  Sidekiq.redis { |redis| redis.info(section) }
end

def cpu_s
  server = info("cpu")
  Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) +
    server["used_cpu_user"].to_f + server["used_cpu_sys"].to_f
end

def memory_bytes
  until_s = now_s + SETTLED_S
  sleep(0.05) while info("persistence")["aof_rewrite_in_progress"] != "0" && now_s < until_s
  found = info("memory")
  found["used_memory"].to_i - found["mem_not_counted_for_evict"].to_i
end

def fill(jobs, per_call: CHUNK, job: Noop, args: [])
  (0...jobs).step(per_call) do |start|
    Sidekiq::Client.push_bulk("class" => job, "args" => Array.new([per_call, jobs - start].min) { args })
  end
end

def launcher(threads)
  Sidekiq::Launcher.new(Sidekiq.options.merge(queues: ["default"], concurrency: threads))
end

def worked(jobs, threads)
  RUN.expect(jobs)
  running = launcher(threads)
  at_s = now_s
  running.run
  took_s = RUN.wait - at_s
  running.quiet
  took_s
end

def drain(jobs:)
  fill(jobs)
  before_s = cpu_s
  took_s = worked(jobs, THREADS)
  {jobs_per_s: jobs / took_s, cpu_s_per_10k: (cpu_s - before_s) / jobs * 10_000}
end

def bulk(jobs:, per_call:)
  Sidekiq.redis(&:ping)
  at_s = now_s
  fill(jobs, per_call: per_call)
  {jobs_per_s: jobs / (now_s - at_s)}
end

def single(jobs:)
  Noop.perform_async
  at_s = now_s
  jobs.times { Noop.perform_async }
  {jobs_per_s: jobs / (now_s - at_s)}
end

def latency(jobs:)
  worker = IO.popen([ENV.fetch("LIMPET_BENCH_RUBY"), __FILE__, "consume", JSON.generate(url: URL)])
  waits = Array.new(jobs + WARM) do
    Stamp.perform_async(Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond))
    waited_ms = worker.gets.to_i / 1e6
    sleep(CALM_S * (0.5 + rand))
    waited_ms
  end
  Process.kill("KILL", worker.pid)
  waits = waits.drop(WARM).sort
  {p50_ms: cut(waits, 0.5), p95_ms: cut(waits, 0.95), p99_ms: cut(waits, 0.99)}
end

def cut(waits, share)
  place = share * (waits.size - 1)
  low = waits[place.floor]
  low + (place - place.floor) * (waits[place.ceil] - low)
end

def waiting(jobs:, seconds:, at_once:)
  fill(jobs, job: Nap, args: [seconds])
  {seconds: worked(jobs, at_once), ideal_s: jobs.to_f / at_once * seconds}
end

def memory(jobs:)
  before = memory_bytes
  fill(jobs, args: ["x" * 100])
  {bytes_per_job: (memory_bytes - before).to_f / jobs}
end

# The worker process of `latency`.
def consume
  launcher(THREADS).run
  sleep
end

def versions
  {sidekiq: Sidekiq::VERSION, redis: Redis::VERSION, hiredis: Hiredis::VERSION, ruby: RUBY_VERSION}
end

name = ARGV.fetch(0)
options = JSON.parse(ARGV.fetch(1), symbolize_names: true)
Redis.silence_deprecations = true # this release asks in a way that its client would warn of at each fetch
Sidekiq.logger = Logger.new($stderr, level: Logger::WARN)
if name == "versions"
  figures = versions
else
  URL = options.delete(:url).sub("{n}", "0")
  Sidekiq.redis = {url: URL, driver: :hiredis, size: options.fetch(:at_once, THREADS) + 5}
  figures = send(name, **options)
end
puts JSON.generate(figures)
$stdout.flush
exit!(0) # its threads would be waited for
