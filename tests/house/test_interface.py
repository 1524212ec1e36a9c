"""Rules of the public interface that can be read off the headers."""
import collections
import re
import unittest

import interface
from support import ROOT


def declared(text):
    """(what it is, name) of all that a header declares, each once."""
    found = {("macro", n) for n in interface.macros(text)}
    found |= {("tag", n) for n in interface.tags(text)}
    found |= {("type", n) for n in interface.types(text)}
    found |= {("constant", n) for _, names in interface.enums(text) for n in names}
    return found | {("function", n) for n, _ in interface.functions(text)}


# Constants that everybody writes, and that are short for it: MANTA_OK and MANTA_E... of manta_status.
WITHOUT_PREFIX = {"manta_status"}


class Interface(unittest.TestCase):
    def test_the_reader_sees_what_is_there(self):
        text = """typedef struct manta_a { int x; struct { int y; } in; } manta_a; /* enum manta_no { MANTA_NO }; */
                  typedef struct manta_b manta_b; typedef manta_status manta_c(void *user, int n);
                  typedef bool (*manta_d)(manta_b *b, void (*f)(int)); enum { MANTA_E = 1 << 2, MANTA_F };
                  #define MANTA_G(x) \\
                      (x)
                  MANTA_API manta_status manta_h(manta_b *b, void (*f)(void *u)) MANTA_MUST_USE;
                  static inline int manta_i(int x) { return x; }"""
        self.assertEqual(declared(text), {
            ("tag", "manta_a"), ("type", "manta_a"), ("tag", "manta_b"), ("type", "manta_b"), ("type", "manta_c"),
            ("type", "manta_d"), ("constant", "MANTA_E"), ("constant", "MANTA_F"), ("macro", "MANTA_G"),
            ("function", "manta_h"), ("function", "manta_i")})

    def test_no_name_is_declared_in_two_headers(self):
        """Two types of one tag would be taken for each other by the compiler."""
        where = collections.defaultdict(set)
        for header in interface.HEADERS:
            for what in declared(header.read_text()):
                where[what].add(header.name)
        self.assertGreater(len(where), 800)
        self.assertEqual({k: sorted(v) for k, v in where.items() if len(v) > 1}, {})

    def test_a_name_is_one_thing(self):
        """A function, a type, a constant or a macro; a macro may stand before the function or type it is made of."""
        kinds = collections.defaultdict(set)
        for header in interface.HEADERS:
            for kind, name in declared(header.read_text()):
                kinds[name].add("type" if kind == "tag" else kind)
        both = {n: sorted(k) for n, k in kinds.items() if len(k) > 1}
        self.assertEqual(both, {"manta_map": ["macro", "type"]})

    def test_layers_are_named_for_themselves(self):
        """Nothing but "_layer" between two functions that do different things."""
        names = {n for header in interface.HEADERS for n, _ in interface.functions(header.read_text())}
        self.assertEqual(sorted(n for n in names if n.endswith("_layer") and n[:-len("_layer")] in names), [])
        merging = {n for n in names if n.startswith("manta_merge_")}
        self.assertEqual(merging, {f"manta_merge_{n}" for n in ("add", "subtract", "multiply", "concatenate",
                                                                 "custom_scale")})

    def test_constants_carry_the_name_of_their_type(self):
        """MANTA_OPTIMIZER_SGD of manta_optimizer_kind: the name, less a final _kind; no two types share one."""
        wrong, owner = [], {}
        for header in interface.HEADERS:
            for name, constants in interface.enums(header.read_text()):
                if name is None or name in WITHOUT_PREFIX:
                    continue
                stem = name if name == "manta_kind" else name.removesuffix("_kind")
                prefix = stem.upper() + "_"
                self.assertNotIn(prefix, owner, f"{name} and {owner.get(prefix)}")
                owner[prefix] = name
                self.assertTrue(constants, name)
                wrong += [f"{header.name}: {c} of {name} does not begin with {prefix}" for c in constants
                          if not c.startswith(prefix)]
        self.assertGreater(len(owner), 20)
        self.assertEqual(wrong, [])
        self.assertEqual([c for header in interface.HEADERS for n, cs in interface.enums(header.read_text())
                          if n in WITHOUT_PREFIX for c in cs if c != "MANTA_OK" and not c.startswith("MANTA_E")], [])

    def test_every_status_must_be_looked_at(self):
        """A function that returns manta_status is MANTA_MUST_USE."""
        giving = [(header.name, name, text) for header in interface.HEADERS
                  for name, text in interface.functions(header.read_text()) if re.match(r"MANTA_API\s+manta_status\s", text)]
        self.assertGreater(len(giving), 190)
        self.assertEqual([f"{header}: {name}" for header, name, text in giving
                          if not re.search(r"\bMANTA_MUST_USE\s*;$", text)], [])

    def test_no_header_speaks_of_the_inside(self):
        """A public struct has no field of nn/, tensor/, os/, ...: no header names a file of src/."""
        folders = "|".join(p.name for p in (ROOT / "src").iterdir() if p.is_dir())
        self.assertEqual([f"{header.name}: {found}" for header in interface.HEADERS
                          for found in re.findall(rf"\b(?:{folders})/\w+\.[ch]\b", header.read_text())], [])

    def test_options_have_one_way_to_say_none(self):
        """manta/option.h: MANTA_NONE and MANTA_ZERO; no minus zero, no bare negative number, no has_."""
        wrong = []
        for header in interface.HEADERS:
            text = header.read_text()
            for name, body in re.findall(r"typedef struct (manta_\w+_(?:options|config)) \{(.*?)\n\} \1;", text, re.S):
                wrong += [f"{header.name}: {name}: {found}"
                          for found in re.findall(r"\bhas_\w+|\bnegative: \w+|[-]0\.0|[-]1: \w+", body)]
        self.assertEqual(wrong, [])
        owners = [h.name for h in interface.HEADERS if re.search(r"#define MANTA_(NONE|ZERO|UNLIMITED)\b", h.read_text())]
        self.assertEqual(owners, ["option.h"])


if __name__ == "__main__":
    unittest.main()
