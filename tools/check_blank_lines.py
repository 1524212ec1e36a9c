#!/usr/bin/env python3
"""check_blank_lines.py [FILE...] - does a blank line follow the declarations at the top of a function?

A function begins with a brace at the start of a line, after a line that is no
initializer. Its declarations are those before the first statement; a comment between
them, and `(void)name;` directly after them, belong to them. Functions that have a
line of the preprocessor there are left alone. Without files: all C files of the
repository. Prints FILE:LINE of each line that needs a blank one before it, and exits 1
when there is any; it changes nothing.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
QUALIFIERS = r"(?:(?:static|const|struct|enum|union|unsigned|signed|long|short|volatile|_Atomic|_Alignas\([^)]*\)|extern|_Thread_local)\s+)*"
# A type, perhaps made by a macro, as VEC(int) is; stars; a name; and what may stand behind the name of a variable.
VARIABLE = re.compile(QUALIFIERS + r"[A-Za-z_]\w*(?:\s*\([^()]*\))?\s+(?:const\s+)?(?:(?:\*+\s*(?:const\s+)?)*|\(\*)"
                      r"[A-Za-z_]\w*(?:\)\(|\[|\s*=|\s*;|\s*,)")
AGGREGATE = re.compile(r"(?:(?:static|const|typedef)\s+)*(?:struct|enum|union)(?:\s+\w+)?\s*\{")
STATEMENTS = {"return", "if", "for", "while", "do", "switch", "case", "default", "goto", "break", "continue", "else",
              "sizeof", "TRY", "MANTA_TRY", "_Static_assert"}
TOP = re.compile(r" {4}(?=\S)")         # a line of a function's body, not of a block in it
VOID = re.compile(r" {4}\(void\)\w+;$")


def is_declaration(line):
    if not TOP.match(line):
        return False
    text = line.strip()
    word = re.match(r"[A-Za-z_]\w*", text)
    if not word or word[0] in STATEMENTS:
        return False
    return bool(AGGREGATE.match(text) or VARIABLE.match(text) or text.startswith("typedef "))


def without_texts(line):
    """The line without what its strings and comments say; one that a comment is left open in ends there."""
    line = re.sub(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])*\'', '""', line)
    line = re.sub(r"/\*.*?\*/", "", line)
    return line.split("/*")[0], "/*" in line


def after_comment(lines, i):
    while i < len(lines) and "*/" not in lines[i]:
        i += 1
    return i + 1


def after_declaration(lines, i):
    """The line behind the declaration that begins at line i, and behind the comment that it ends with."""
    depth = 0
    while i < len(lines):
        code, is_open = without_texts(lines[i])
        depth += sum(code.count(c) for c in "({[") - sum(code.count(c) for c in ")}]")
        ends = depth == 0 and code.rstrip().endswith(";")
        i = after_comment(lines, i) if is_open else i + 1
        if ends:
            break
    return i


def after_top(lines, i):
    """The first line that is no part of the declarations from line i on; None: there are none, or it cannot be said."""
    some = False
    while i < len(lines):
        line = lines[i]
        if is_declaration(line):
            some = True
            i = after_declaration(lines, i)
        elif some and VOID.match(line):
            i += 1
        elif some and line.startswith("    /*"):
            behind = after_comment(lines, i)
            if behind >= len(lines) or not is_declaration(lines[behind]):
                return i
            i = behind
        elif line.startswith("#"):
            return None
        else:
            return i if some else None
    return None


def missing(text):
    """Numbers, from 1, of the lines that need a blank line before them."""
    lines = text.split("\n")
    for i, line in enumerate(lines):
        if line != "{" or i == 0 or lines[i - 1].rstrip().endswith("="):
            continue
        at = after_top(lines, i + 1)
        if at is not None and lines[at].strip() not in ("", "}"):
            yield at + 1


def sources():
    done = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.c", "*.h"],
                          check=True, capture_output=True, text=True)
    return [ROOT / name for name in sorted(set(done.stdout.split("\0"))) if name and (ROOT / name).is_file()]


def check(files):
    """A line about each that is missing in these files."""
    return [f"{path}:{line}: a blank line is missing after the declarations"
            for path in files for line in missing(pathlib.Path(path).read_text(encoding="utf-8"))]


def main():
    found = check(sys.argv[1:] or sources())
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
