#!/usr/bin/env python3
"""Sends mail about a job: dovetail serve --mail-command examples/mail/by_sendmail.py

The service gives the job as JSON on standard input. ``sendmail -t`` (of Postfix, Exim, msmtp …) takes whom a
message is for from its head.
"""

import json
import subprocess
import sys
from email.message import EmailMessage

document = json.load(sys.stdin)
job = document["job"]
states = document.get("array", {}).get("states") or {job["state"]: 1}
number = document.get("array", {}).get("id", job["id"])
message = EmailMessage()
message["To"] = document["mail"]["user"]
message["Subject"] = f"Job {number} ({' '.join(job['name'].split())}): {document['event']}"
took = "" if job["end"] is None or job["start"] is None else f"It ran {job['end'] - job['start']:.0f} s.\n"
message.set_content(
    f"{', '.join(f'{count} {state}' for state, count in states.items())}\n{took}{job['reason']}\n"
)
sys.exit(subprocess.run(["sendmail", "-t", "-i"], input=message.as_bytes(), check=False).returncode)
