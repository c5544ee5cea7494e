"""How benches print their figures: a line per row for people, or with --json an object per row and nothing else."""
import json
import sys


class Rows:
    def __init__(self, parser):
        parser.add_argument("--json", action="store_true", help="one JSON object per row and nothing else")
        self.as_json = False

    def parsed(self, arguments):
        self.as_json = arguments.json
        return arguments

    def say(self, text):
        """What is no row: for people, who find it on stderr beside --json."""
        print(text, flush=True, file=sys.stderr if self.as_json else sys.stdout)

    def add(self, text, **values):
        print(json.dumps(values) if self.as_json else text, flush=True)

    def skip(self, reason):
        self.add(f"skipped: {reason}", skipped=reason)
