"""Calls of every exported function with an argument that cannot be, as a C program read off the public headers.

For each pointer of each function there is a case that passes NULL there, for each enumeration one that passes a
number that none of its constants has, and for each count one that passes -1;
all other arguments are as good as their types alone allow (misuse_fixture.h). The program runs each case in a
process of its own and prints a line for it: function, argument, what was passed, and what came of it."""
import re

import interface

# Types that are pointers, or structs given by value, and what stands for a good one.
FUNCTIONS = re.compile(r"^(manta_\w+_fn|manta_resolver|manta_map_input|manta_hook)$")
NUMBERS = {"int": "1", "int64_t": "1", "size_t": "1", "uint64_t": "1", "unsigned": "0", "uint32_t": "1", "double": "0.5",
           "float": "0.5f", "bool": "false", "char": "'x'"}
COUNTS = {"int": ("-1",), "int64_t": ("-1",)}


def split(arguments):
    """The arguments of a declaration, each as text."""
    parts, depth, text = [], 0, ""
    for c in arguments:
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append(text.strip())
            text = ""
        else:
            text += c
    return [p for p in parts + [text.strip()] if p and p != "void"]


def parameter(text):
    """(type, name, is a pointer, is a function) of an argument."""
    m = re.search(r"\(\s*\*\s*(\w+)\s*\)\s*\(", text)
    if m:
        return text.replace(m[1], "", 1), m[1], True, True
    m = re.fullmatch(r"(.*?)(\w+)((?:\[\w*\])*)", text)
    kind, name = m[1].strip() + (" *" if m[3] else ""), m[2]
    base = re.sub(r"\bconst\b|\*", "", kind).strip()
    return kind, name, "*" in kind or base == "manta_map_fn" or base in POINTER_TYPES, bool(FUNCTIONS.match(base)) or base in POINTER_TYPES


def pointer_types():
    """Types whose typedef is a pointer to a function."""
    found = set()
    for header in interface.HEADERS:
        found |= set(re.findall(r"\btypedef\s+[^;{}]*?\(\s*\*\s*(\w+)\s*\)\s*\(", interface.plain(header.read_text())))
    return found


POINTER_TYPES = pointer_types()


def declarations():
    """(header, function, return type, [(type, name, is a pointer, is a function)]) of each exported function."""
    for header in interface.HEADERS:
        if header.name == "tool_bench.h":   # a NULL there asks for all of a benchmark
            continue
        for name, text in interface.functions(header.read_text()):
            text = re.sub(r"\s+", " ", text)
            if not text.startswith("MANTA_API") or "..." in text:
                continue
            m = re.match(rf"MANTA_API (.*?)\b{name} ?\((.*)\) ?(?:MANTA_\w+(?:\([^)]*\))? ?)*;$", text)
            yield header.name, name, m[1].strip(), [parameter(p) for p in split(m[2])]


ENUMS = {n for h in interface.HEADERS for n, _ in interface.enums(h.read_text()) if n}


def good(parameter_):
    """An expression for an argument that is as it should be, as far as its type says."""
    kind, name, is_pointer, is_function = parameter_
    base = re.sub(r"\bconst\b|\*", "", kind).strip()
    stars = kind.count("*")
    if is_function:
        return "(void *)nothing"
    if stars == 0:
        if base in NUMBERS:
            return NUMBERS[base]
        return f"({base})0" if base in ENUMS else f"GOOD({base})"
    if name == "shape":
        return "good_shape"
    if stars == 1 and base == "char":
        return "(void *)TEXT(\"%s\")" % name if "const" in kind else "(void *)room()"
    if stars == 1 and base.startswith("manta_"):
        return "ONE(open_model)" if kind == "manta_model *" and name == "m" else f"ONE({base})"
    return "(void *)room()"


def cases():
    """(function, argument, what is passed, C of the call) of each case."""
    for _, name, returns, parameters in declarations():
        for i, (kind, argument, is_pointer, _) in enumerate(parameters):
            base = re.sub(r"\bconst\b|\*", "", kind).strip()
            if is_pointer:
                wrong = ["NULL"]
            elif base in ENUMS:
                wrong = [f"({base})55"]
            else:   # a negative time is none at all
                wrong = COUNTS.get(base, ()) if not argument.endswith("_ms") else ()
            for value in wrong:
                given = [value if i == k else good(p) for k, p in enumerate(parameters)]
                yield name, argument, re.sub(r"^\(\w+\)", "", value), returns, f"{name}({', '.join(given)})"


def types_needed():
    """Handles and structs that some argument is, by value or by a single pointer."""
    by_pointer, by_value = set(), set()
    for *_, parameters in declarations():
        for kind, _, is_pointer, is_function in parameters:
            base = re.sub(r"\bconst\b|\*", "", kind).strip()
            if is_function or not base.startswith("manta_") or base in ENUMS:
                continue
            if kind.count("*") == 1:
                by_pointer.add(base)
            elif kind.count("*") == 0:
                by_value.add(base)
    return by_pointer, by_value


def program():
    """The C program."""
    out = ['#include "misuse_fixture.h"', ""]
    table = []
    for i, (name, argument, value, returns, call) in enumerate(cases()):
        if returns == "manta_status":
            body = f"told({call});"
        elif returns == "void":
            body = f"{call}; said();"
        else:
            body = f"(void){call}; said();"
        out.append(f"static void case_{i}(void)\n{{\n    {body}\n}}\n")
        table.append(f'    {{"{name}", "{argument}", "{value}", case_{i}}},')
    out += ["const misuse all_cases[] = {", *table, "};", "", f"const int n_cases = {len(table)};", ""]
    return "\n".join(out)


if __name__ == "__main__":
    print(program())
