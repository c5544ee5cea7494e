"""Compares what a page shows of a command's output with what the command prints."""
import re

UNITS = {"ns": ("seconds", 1e-9), "us": ("seconds", 1e-6), "ms": ("seconds", 1e-3), "s": ("seconds", 1.0),
         "min": ("seconds", 60.0), "h": ("seconds", 3600.0), "%": ("percent", 1.0), "x": ("times", 1.0)}
for _name, _scale in (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)):
    for _unit in ("B", "B/s", "bit/s", "FLOP", "FLOP/s"):
        UNITS[_name + _unit] = (_unit, _scale)
for _power, _name in enumerate(("Ki", "Mi", "Gi", "Ti"), 1):
    UNITS[_name + "B"] = ("B", 1024.0 ** _power)

_UNIT = "|".join(sorted(map(re.escape, UNITS), key=len, reverse=True))
TOKEN = re.compile(r"(?<![\w.])(?P<number>[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)(?: ?(?P<unit>" + _UNIT + r")(?![\w/]))?(?![\w])"
                   r"|(?P<bar>[█▉▊▋▌▍▎▏▒░▓#=·_-]{2,}|[▁▂▃▄▅▆▇█]+)|(?P<word>[()\[\];:,]|[^\s()\[\];:,█▉▊▋▌▍▎▏▒░▓▁▂▃▄▅▆▇]+)")
SMALL_PERCENT = 10.0  # below it two shares of noise may differ by any factor


def tokens(line):
    """The words, numbers with units, and bars of a line, as comparable tuples."""
    found = []
    for token in TOKEN.finditer(line):
        if token["number"]:
            value = float(token["number"].replace(",", ""))
            kind, scale = UNITS.get(token["unit"], ("", 1.0))
            whole = not token["unit"] and "." not in token["number"]
            found.append(("number", "count" if whole else kind, value * scale))
        else:
            found.append((token.lastgroup, token["word"] or ""))
    return found


def agrees(shown, printed):
    """True if two tokens are the same word, or numbers of one unit, sign and order (ten times at most)."""
    if shown[:2] != printed[:2] or shown[0] != "number" or shown[1] == "count":
        return shown == printed
    first, second = shown[2], printed[2]
    if shown[1] == "percent" and max(abs(first), abs(second)) <= SMALL_PERCENT:
        return True
    if first == 0 or second == 0:
        return first == second
    return first * second > 0 and 0.1 <= first / second <= 10


def same_line(shown, printed):
    """True if a line of a page is the printed one; `...` at its end stands for any rest."""
    head = shown.rstrip()
    return printed.startswith(head[:-3].rstrip()) if head.endswith("...") else head == printed.rstrip()


def line_difference(shown, printed):
    """The first line of a page that was not printed in this order, or that was printed and is not shown."""
    lines = [line for line in printed.splitlines() if line.strip()]
    at, gap = 0, False
    for line in filter(str.strip, shown.splitlines()):
        if line.strip() == "...":
            gap = True
            continue
        found = next((i for i in range(at, len(lines) if gap else min(at + 1, len(lines)))
                      if same_line(line, lines[i])), None)
        if found is None:
            return f'"{line.strip()}" is not what was printed there'
        at, gap = found + 1, False
    return "" if gap or at >= len(lines) else f'"{lines[at].strip()}" was printed and is not shown'


def measured_difference(shown, printed):
    """The same of measured output, by tokens: where lines are broken depends on their numbers."""
    stream = tokens(printed)
    parts = [tokens(part) for part in re.split(r"\.\.\.", shown)]
    at = 0
    for i, part in enumerate(parts):
        starts = [at] if i == 0 else range(at, len(stream) - len(part) + 1)
        if i + 1 == len(parts) and i > 0 and part:
            starts = [len(stream) - len(part)]
        found = next((s for s in starts if len(stream[s: s + len(part)]) == len(part)
                      and all(map(agrees, part, stream[s: s + len(part)]))), None)
        if found is None:
            line = re.split(r"\.\.\.", shown)[i].strip().splitlines()[0]
            return f'what begins with "{line}" is not what was printed there'
        at = found + len(part)
    return "" if len(parts) > 1 or at == len(stream) else "more was printed than is shown"


def difference(shown, printed, measured=False):
    """What of a page's block was not printed, in a sentence and the output, or "" if all was, in this order."""
    found = (measured_difference if measured else line_difference)(shown, printed)
    return f'{found}; "..." leaves out what is not shown:\n{printed}' if found else ""
