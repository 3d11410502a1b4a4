"""Lists two examples for every command, which its help ends with; tests run them."""

from __future__ import annotations

from typing import Final

EXAMPLES: Final[dict[str, tuple[str, str]]] = {
    "worker": (
        "limpet worker shop:app",
        "limpet worker shop:app --queues mail,exports --concurrency 20 --processes 2",
    ),
    "enqueue": (
        """limpet enqueue mail.send '{"to": "a@b.c"}' --app shop:app --wait 30""",
        """limpet enqueue mail.send '{"to": "a@b.c"}' --priority high --unique welcome:42 --delay 5m""",
    ),
    "alerts": ("limpet alerts", "limpet alerts silence dead_letters:mail --for 2h --reason 'we know'"),
    "alerts list": ("limpet alerts --open", "limpet alerts list --json"),
    "alerts rules": ("limpet alerts rules", "limpet alerts rules --json"),
    "alerts silences": ("limpet alerts silences", "limpet alerts silences --json"),
    "alerts silence": (
        "limpet alerts silence oldest_ready --for 30m --reason 'a backfill runs'",
        "limpet alerts silence 'breaker_open:webhook:*' --for 1d --json",
    ),
    "alerts unsilence": ("limpet alerts unsilence oldest_ready", "limpet alerts unsilence oldest_ready --json"),
    "alerts test": ("limpet alerts test", "limpet alerts test pager --wait 60 --json"),
    "top": ("limpet top --once", "limpet top --once --filter mail --json"),
    "hooks": ("limpet hooks", "limpet hooks remove hook:shop.alert"),
    "hooks list": ("limpet hooks", "limpet hooks list --jsonl"),
    "hooks remove": (
        "limpet hooks remove hook:shop.alert",
        "limpet hooks remove hook:shop.alert --reason 'the pager does it now' --json",
    ),
    "redaction": ("limpet redaction", "limpet redaction add 'args.card.number'"),
    "redaction list": ("limpet redaction", "limpet redaction list --jsonl"),
    "redaction add": (
        "limpet redaction add '*token*' --reason 'seen in an error'",
        "limpet redaction add args.body --task mail.send --json",
    ),
    "redaction remove": (
        "limpet redaction remove '*token*'",
        "limpet redaction remove args.body --task mail.send --reason 'no secret' --json",
    ),
    "outbox": (
        "limpet outbox shop:app",
        "limpet outbox --outbox sqlite:///shop.db --once",
    ),
    "demo": ("limpet demo", "limpet demo --scale 0.1 --seed 7"),
    "agent": (
        "limpet agent claim --agent a1 --wait 30 --json",
        """limpet agent complete 4d1c --token 3641 --result '{"pages": 3}'""",
    ),
    "agent claim": (
        "limpet agent claim --agent a1 --capability eng-backend --wait 30 --json",
        "limpet agent claim --agent a1 --queues review --max 5 --lease 10m --key run-7 --json",
    ),
    "agent heartbeat": (
        "limpet agent heartbeat 4d1c --token 3641",
        "limpet agent heartbeat 4d1c --token 3641 --lease 30m --json",
    ),
    "agent checkpoint": (
        """limpet agent checkpoint 4d1c --token 3641 --value '{"page": 3}'""",
        "limpet agent checkpoint 4d1c --token 3641 --value @state.json",
    ),
    "agent progress": (
        "limpet agent progress 4d1c --token 3641 --done 3 --total 10",
        "limpet agent progress 4d1c --token 3641 --done 3 --total 10 --message 'reading page 3'",
    ),
    "agent complete": (
        """limpet agent complete 4d1c --token 3641 --result '{"pages": 3}'""",
        "limpet agent complete 4d1c --token 3641 --result @answer.json --spent tokens=1834 --spent usd=0.02",
    ),
    "agent fail": (
        "limpet agent fail 4d1c --token 3641 --error 'no such page' --class permanent",
        "limpet agent fail 4d1c --token 3641 --error '429' --class rate-limited --retry-after 30",
    ),
    "agent release": (
        "limpet agent release 4d1c --token 3641",
        "limpet agent release 4d1c --token 3641 --reason 'needs a database'",
    ),
    "agent block": (
        "limpet agent block 4d1c --token 3641 --question 'Which of the two accounts?'",
        "limpet agent block 4d1c --token 3641 --question 'Delete the old table?' --timeout 1d",
    ),
    "agent answer": (
        "limpet agent answer 4d1c 'the second one'",
        "limpet agent answer welcome:42 'yes, delete it' --task mail.send --json",
    ),
    "agent setup": ("limpet agent setup", "limpet agent setup --folder .agent/skills/limpet --force"),
    "agent prime": ("limpet agent prime --agent a1", "limpet agent prime --agent a1 --json"),
    "export": ("limpet export --folder queue", "limpet export --folder queue --watch --finished 100"),
    "import": ("limpet import --folder queue", "limpet import --folder .loki/queue --json"),
    "mcp": ("limpet mcp", "limpet mcp --ops --structured"),
    "types": ("limpet types", "limpet types show eng.api"),
    "types list": ("limpet types", "limpet types list --jsonl"),
    "types show": ("limpet types show eng.api", "limpet types show eng.api --json"),
    "types set": (
        """limpet types set eng.api '{"queue": "eng", "capabilities": ["eng-backend"], "lease": "20m"}'""",
        """limpet types set eng.api '{"result": {"required": ["decision"]}}' --reason 'reports lacked it'""",
    ),
    "types reset": ("limpet types reset eng.api", "limpet types reset eng.api --reason 'the file is right' --json"),
    "types remove": ("limpet types remove eng.api", "limpet types remove eng.api --reason 'not used' --json"),
    "types apply": ("limpet types apply", "limpet types apply --json"),
    "jobs": (
        "limpet jobs state:dead queue:mail",
        "limpet jobs 'args.amount>100' 'finished<1h' timeout -task:mail.send --jsonl",
    ),
    "job": ("limpet job 4d1c --full", "limpet job 4d1c --wait 5m"),
    "explain": ("limpet explain 4d1c", "limpet explain 4d1c --json"),
    "tasks": ("limpet tasks --watch", "limpet tasks mail.send --json"),
    "queues": ("limpet queues", "limpet queues retention set mail --succeeded 1h"),
    "queues list": ("limpet queues --watch", "limpet queues list --jsonl"),
    "queues retention": ("limpet queues retention", "limpet queues retention set mail --dead forever"),
    "queues retention list": ("limpet queues retention", "limpet queues retention list --jsonl"),
    "queues retention set": (
        "limpet queues retention set mail --succeeded 1h",
        "limpet queues retention set exports --succeeded 7d --dead forever --reason audit",
    ),
    "queues retention clear": (
        "limpet queues retention clear mail",
        "limpet queues retention clear exports --reason 'the audit is over' --json",
    ),
    "queues weights": ("limpet queues weights", "limpet queues weights set tenant:acme 3"),
    "queues weights list": ("limpet queues weights", "limpet queues weights list --jsonl"),
    "queues weights set": (
        "limpet queues weights set tenant:acme 3",
        "limpet queues weights set queue:mail 10 --reason 'before exports'",
    ),
    "queues weights clear": (
        "limpet queues weights clear tenant:acme",
        "limpet queues weights clear queue:mail --json",
    ),
    "flows": ("limpet flows", "limpet flows show 4d1c"),
    "flows list": ("limpet flows", "limpet flows list --limit 10 --jsonl"),
    "flows show": ("limpet flows show 4d1c", "limpet flows show 4d1c --wait --timeout 5m"),
    "flows cancel": ("limpet flows cancel 4d1c --dry-run", "limpet flows cancel 4d1c --yes --reason 'wrong month'"),
    "flows retry": ("limpet flows retry 4d1c", "limpet flows retry 4d1c --from render --yes"),
    "flow": ("limpet flow 4d1c", "limpet flow retry 4d1c --from render"),
    "workers": ("limpet workers --watch", "limpet workers --jsonl"),
    "stats": ("limpet stats --watch 10", "limpet stats --json"),
    "events": ("limpet events --limit 20 --jsonl", "limpet events --follow queue:mail state:dead"),
    "audit": ("limpet audit --limit 20", "limpet audit --after 100 --jsonl"),
    "classify": (
        "limpet classify builtins:TimeoutError",
        "limpet classify --status 429 --header 'Retry-After: 12'",
    ),
    "doctor": ("limpet doctor --quiet", "limpet doctor --repair --dry-run"),
    "cancel": (
        "limpet cancel 4d1c --reason 'asked twice'",
        "limpet cancel task:export tenant:acme --dry-run",
    ),
    "retry": (
        "limpet retry error:Timeout queue:mail --dry-run",
        "limpet retry error:Timeout --per-second 10 --sample 20 --stop-after 5 --yes",
    ),
    "rerun": ("limpet rerun 4d1c", "limpet rerun state:cancelled task:export 'age<1d' --dry-run"),
    "dead": ("limpet dead causes", "limpet dead retry error:Timeout --yes --reason 'it is back'"),
    "dead list": ("limpet dead queue:mail", "limpet dead list error:Timeout --limit 10 --jsonl"),
    "dead show": ("limpet dead show 4d1c", "limpet dead show 4d1c --full"),
    "dead causes": ("limpet dead causes", "limpet dead causes --status open --status regressed --hours"),
    "dead cause": ("limpet dead cause 9f2c41", "limpet dead cause timeout --queue mail --json"),
    "dead acknowledge": (
        "limpet dead acknowledge 9f2c41",
        "limpet dead acknowledge timeout --queue mail --reason 'the provider is told' --json",
    ),
    "dead snooze": (
        "limpet dead snooze 9f2c41 2h --reason 'they are back at noon'",
        "limpet dead snooze timeout 2099-11-19T08:00Z --queue mail",
    ),
    "dead resolve": (
        "limpet dead resolve 9f2c41 --reason 'fixed in 1.4'",
        "limpet dead resolve timeout --task mail.send --dry-run",
    ),
    "dead reopen": ("limpet dead reopen 9f2c41", "limpet dead reopen timeout --queue mail --reason 'not fixed' --json"),
    "dead assign": (
        "limpet dead assign 9f2c41 ada --reason 'her service'",
        "limpet dead assign timeout --queue mail --none",
    ),
    "dead note": (
        "limpet dead note 9f2c41 'see ticket 7'",
        "limpet dead note timeout 'the provider was told' --queue mail --json",
    ),
    "dead escalate": (
        "limpet dead escalate 9f2c41 --to 'network team' --reason 'since noon'",
        "limpet dead escalate timeout --queue mail --to ada --if-version 0",
    ),
    "dead review": ("limpet dead review", "limpet dead review --queue mail --assignee ada"),
    "dead log": ("limpet dead log --since 30d", "limpet dead log --since 2020-11-19T08:00Z --queue mail --json"),
    "dead retry": (
        "limpet dead retry error:Timeout --dry-run",
        "limpet dead retry --all --yes --reason 'the provider is back'",
    ),
    "dead edit": (
        "limpet dead edit 4d1c",
        """limpet dead edit 4d1c --patch '{"to": "c@d.e"}' --yes --reason 'typing error'""",
    ),
    "dead discard": (
        "limpet dead discard 4d1c --reason 'order was cancelled'",
        "limpet dead discard task:mail.send 'age>30d' --dry-run",
    ),
    "operations": ("limpet operations", "limpet operations continue 4d1c"),
    "operations list": ("limpet operations --watch", "limpet operations list --open --json"),
    "operations show": ("limpet operations show 4d1c", "limpet operations show 4d1c --json"),
    "operations continue": (
        "limpet operations continue 4d1c",
        "limpet operations continue 4d1c --background --reason 'the sample looks well'",
    ),
    "operations pause": (
        "limpet operations pause 4d1c",
        "limpet operations pause 4d1c --reason 'the provider is slow' --json",
    ),
    "operations cancel": ("limpet operations cancel 4d1c", "limpet operations cancel 4d1c --reason 'wrong query'"),
    "operations run": ("limpet operations run 4d1c", "limpet operations run"),
    "approvals": ("limpet approvals", "limpet approvals approve 4d1c --comment 'checked'"),
    "approvals list": ("limpet approvals queue:refunds", "limpet approvals list --limit 10 --jsonl"),
    "approvals approve": (
        "limpet approvals approve 4d1c --comment 'checked with the bank'",
        "limpet approvals approve refund:7 --task refunds.refund --name manager",
    ),
    "approvals reject": (
        "limpet approvals reject 4d1c --comment 'too much'",
        "limpet approvals reject refund:8 --task refunds.refund",
    ),
    "signal": (
        "limpet signal 4d1c paid",
        """limpet signal order:7 paid '{"amount": 90}' --task shop.order""",
    ),
    "pause": ("limpet pause mail --reason 'templates change'", "limpet pause --task mail.send"),
    "resume": ("limpet resume mail", "limpet resume --all"),
    "drain": ("limpet drain exports", "limpet drain --all --wait --timeout 10m --reason 'move to PostgreSQL'"),
    "limits": ("limpet limits --waiting", "limpet limits set smtp --rate 10/m"),
    "limits list": ("limpet limits list customer:", "limpet limits --waiting --json"),
    "limits set": (
        "limpet limits set smtp --rate 10/m --concurrency 20",
        "limpet limits set queue:exports --depth 10000 --reason 'the disk is small'",
    ),
    "limits clear": ("limpet limits clear smtp", "limpet limits clear queue:exports --reason 'larger disk'"),
    "limits history": ("limpet limits history", "limpet limits history smtp --limit 20 --jsonl"),
    "breakers": ("limpet breakers --open", "limpet breakers trip webhooks --for 10m"),
    "breakers list": ("limpet breakers list webhook: --open", "limpet breakers --limit 20 --json"),
    "breakers trip": (
        "limpet breakers trip webhooks --for 10m",
        "limpet breakers trip webhooks --reason 'the provider moves' --new",
    ),
    "breakers reset": ("limpet breakers reset webhooks", "limpet breakers reset limit:openai --reason 'paid'"),
    "breakers history": ("limpet breakers history", "limpet breakers history webhooks --limit 20"),
    "schedules": ("limpet schedules", "limpet schedules add shop.tidy --every 5m"),
    "schedules list": ("limpet schedules", "limpet schedules list --jsonl"),
    "schedules show": ("limpet schedules show nightly", "limpet schedules show nightly --json"),
    "schedules next": ("limpet schedules next", "limpet schedules next nightly --count 10"),
    "schedules add": (
        "limpet schedules add shop.tidy --every 5m",
        """limpet schedules add shop.report '{"kind": "day"}' --name nightly --cron '0 8 * * *' --tz Europe/Paris""",
    ),
    "schedules change": (
        "limpet schedules change nightly --cron '0 9 * * *'",
        """limpet schedules change nightly --args '{"kind": "week"}' --reason 'asked by sales'""",
    ),
    "schedules remove": ("limpet schedules remove nightly --yes", "limpet schedules remove nightly --yes --json"),
    "schedules pause": ("limpet schedules pause nightly", "limpet schedules pause nightly --reason 'month end'"),
    "schedules resume": ("limpet schedules resume nightly", "limpet schedules resume nightly --json"),
    "schedules reset": ("limpet schedules reset nightly", "limpet schedules reset nightly --reason 'deployed'"),
    "schedules run": ("limpet schedules run nightly", "limpet schedules run nightly --existing-ok --json"),
    "schedules backfill": (
        "limpet schedules backfill nightly --from 7d --dry-run",
        "limpet schedules backfill nightly --from 2026-01-01 --to 2026-01-31 --yes",
    ),
    "migrate": ("limpet migrate", "limpet migrate --url sqlite:///jobs.db --json"),
    "config": ("limpet config", "limpet config --json"),
    "serve": ("limpet serve", "limpet serve --host 0.0.0.0 --port 8080 --log json"),
    "tokens": ("limpet tokens", "limpet tokens create --role worker --queue mail --expires 90d"),
    "tokens list": ("limpet tokens", "limpet tokens list --all --jsonl"),
    "tokens create": (
        "limpet tokens create --role worker --queue mail --expires 90d",
        "limpet tokens create --role viewer --name grafana --reason 'the board in the hall' --json",
    ),
    "tokens revoke": ("limpet tokens revoke grafana", "limpet tokens revoke limpet_3fA81kQz --reason 'was in a log'"),
    "completion": ('eval "$(limpet completion bash)"', "limpet completion fish"),
}


def examples_of(path: str) -> tuple[str, ...]:
    """The examples of a command, by the names that lead to it: "dead retry"."""
    from limpet.cli.commands import SHORT

    first, space, rest = path.partition(" ")
    whole = f"{SHORT.get(first, first)}{space}{rest}"
    return EXAMPLES.get(path, EXAMPLES.get(whole, ()))
