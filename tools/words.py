#!/usr/bin/env python3
"""Rejects names and phrases that gave way to the terms of PyTorch, MPI, NCCL and Linux.

    tools/words.py [FILE...]     all sources and pages of the repository unless files are named

NAMES are identifiers, each with the folders where it is rejected; PHRASES are prose, rejected in pages,
comments, help and messages. A term of another field keeps its meaning elsewhere: the lanes of a vector, the
seals of a memfd, a layer's `Unit` in fsdp.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ("*.h", "*.cpp", "*.c", "*.py", "*.sh", "*.cmake", "*.md", "CMakeLists.txt", "dev")
SKIPPED = {"CHANGELOG.md", "tools/words.py"}

ANYWHERE = "hanji/"
# (folder, identifier, what it is called now)
NAMES = [
    (ANYWHERE, r"telephone\w*", "report_fd"),
    (ANYWHERE, r"(?:\w+_)?(?:talk|hear|heed)(?:_\w+)?(?=\()", "exchange, receive, apply"),
    (ANYWHERE, r"tells?(?:_\w+)?(?=\()|tell(?:s|ing)?_\w+", "notify, report, send"),
    (ANYWHERE, r"ask_twins", "compare_across_hosts"),
    (ANYWHERE, r"twins?|kTwins?", "rail peers"),
    ("hanji/comm/hierarchical/", r"[lL]anes?", "rail"),
    (ANYWHERE, r"Doorkeeper|Guest|let_in", "Authenticator, AuthenticatedPeer, accept"),
    ("hanji/comm/", r"Ways?", "P2pRoute"),
    ("hanji/comm/", r"Units?", "CallBatch"),
    (ANYWHERE, r"kMost\w*", "kMax..."),
    (ANYWHERE, r"\w*[cC]rowded\w*", "oversubscribed"),
    (ANYWHERE, r"Patience|[kK]?Naps?(?:[A-Z]\w*)?|nap", "SpinWait, sleep"),
    ("hanji/shm/", r"Bell", "Waiters"),
    (ANYWHERE, r"Wish(?:es)?", "Config"),
    (ANYWHERE, r"Promises?", "Postcondition"),
    ("hanji/parallel/", r"(?:un)?seal(?:ed|s|_all)?|near_|NearShard|begin_gather", "reshard, secondary_shard_, SecondaryShard, begin_unshard"),
    (ANYWHERE, r"story_of|words_of|take_news", "describe, to_string, poll"),
    (ANYWHERE, r"look_at_hearts|leave_the_word_to_the_launcher", "check_heartbeats, wait_for_launcher_report"),
    (ANYWHERE, r"error_handler_t", "base::dump, which keeps bytes that are no UTF-8"),
]
# (expression, what to write)
PHRASES = [
    (r"but for nothing", "identical on all ranks"),
    (r"whoever|whomever", "the subject"),
    (r"aloud", "and the reason is printed"),
    (r"(?:by|in) turns|tak(?:es?|ing) turns", "interleaved, alternating, double-buffered"),
    (r"made whole|make (?:it |them |a unit )?whole", "unsharded, unshard"),
    (r"(?:held|holds?) against", "compared with"),
    (r"files? without a name", "unlinked file"),
    (r"compute(?:d|s)? again", "recomputed"),
    (r"memory banks?", "NUMA node"),
]

# Folders whose messages have counts of these: "{} ranks" would be "1 ranks" of one.
COUNTING = ("hanji/cli/", "hanji/plan/", "hanji/report/", "hanji/train/")
COUNTED = re.compile(r"\{\} (ranks|tokens|steps|samples|hosts|layers|heads|stages|threads|residues)\b")


def compiled():
    names = [(folder, re.compile(rf"(?<!\w)(?:{name})(?!\w)"), now) for folder, name, now in NAMES]
    phrases = [(re.compile(rf"\b(?:{phrase})", re.I), now) for phrase, now in PHRASES]
    return names, phrases


def mistakes_of(path, text, names, phrases):
    """Lines "path:line: 'word' is called now"."""
    is_code = not path.endswith(".md")
    for number, line in enumerate(text.splitlines(), 1):
        code = re.sub(r'"(?:[^"\\]|\\.)*"', '""', line.split("//")[0]) if is_code else ""
        for folder, name, now in names:
            for found in name.findall(code) if path.startswith(folder) else []:
                yield f"{path}:{number}: '{found}' is called {now}"
        for found in COUNTED.findall(line) if is_code and path.startswith(COUNTING) else []:
            yield f"{path}:{number}: for '{{}} {found}' write base::counted(n, \"{found[:-1]}\")"
        for phrase, now in phrases:
            for found in phrase.findall(line):
                yield f"{path}:{number}: for '{found}' write: {now}"


def main():
    listed = subprocess.run(["git", "ls-files", "--", *SOURCES], cwd=ROOT, check=True, text=True,
                            capture_output=True).stdout.split()
    names, phrases = compiled()
    mistakes = []
    for path in sys.argv[1:] or listed:
        if path not in SKIPPED:
            mistakes += mistakes_of(path, (ROOT / path).read_text(), names, phrases)
    print("\n".join(mistakes), end="\n" if mistakes else "", file=sys.stderr)
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
