#!/usr/bin/env bash
# An agent in a shell: it claims a job, runs a command on it, and reports how that ended, until it is stopped.
#
#     examples/agent_loop.sh NAME COMMAND [OPTIONS OF CLAIM...]
#
# COMMAND reads the job on its standard input, as `limpet agent claim` prints it, and prints the result as JSON. Exit code 0
# completes the job, 75 tries it again later, 76 asks a person (what was printed is the question), and any other code fails it
# for good. Heartbeats keep the lease while the command runs.
set -u
name=$1 command=$2
shift 2
job=$(mktemp) result=$(mktemp)
beats=
trap 'rm -f "$job" "$result"; [ -z "$beats" ] || kill "$beats" 2> /dev/null; exit 0' EXIT TERM INT

while true; do
  limpet agent claim --agent "$name" --wait "${WAIT:-30}" "$@" > "$job" 2> /dev/null
  code=$?
  [ "$code" = 8 ] && continue # nothing to do
  [ "$code" = 0 ] || exit "$code"
  read -r id _ token _ < "$job"
  (while sleep "${BEAT:-120}"; do limpet agent heartbeat "$id" --token "$token" > /dev/null 2>&1; done) &
  beats=$!
  "$command" < "$job" > "$result"
  code=$?
  kill "$beats" 2> /dev/null
  beats=
  case $code in
    0) limpet agent complete "$id" --token "$token" --result "@$result" ;;
    75) limpet agent fail "$id" --token "$token" --error "tried again" --class transient ;;
    76) limpet agent block "$id" --token "$token" --question "$(cat "$result")" ;;
    *) limpet agent fail "$id" --token "$token" --error "exit code $code" --class permanent ;;
  esac
done
