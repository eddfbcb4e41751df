#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The subject of the commit that is checked out has at most 72 characters (CONTRIBUTING.md). Exit code 77: no repository."""
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 72

run = subprocess.run(["git", "log", "-1", "--no-merges", "--format=%s"], cwd=ROOT, capture_output=True, text=True)
if run.returncode or not run.stdout.strip():
    print("not a git repository")
    sys.exit(77)
subject = run.stdout.strip()
print(f"{len(subject)} characters: {subject}")
sys.exit(len(subject) > LIMIT)
