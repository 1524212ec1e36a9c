"""Include lines point downwards, and the script that says so can tell."""
import pathlib
import re
import tempfile
import unittest
from unittest import mock

from support import ROOT
import check_includes


class Tree:
    """A scratch repository with just the files a test names."""

    def __init__(self, files):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        for name in ("src/base", "include/manta", "tests/unit"):
            (self.root / name).mkdir(parents=True)
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def __enter__(self):
        return check_includes.check(self.root)

    def __exit__(self, *_):
        self.folder.cleanup()


class Includes(unittest.TestCase):
    def test_the_repository_is_clean(self):
        self.assertEqual(check_includes.check(ROOT), [])

    def test_no_row_stands_for_nothing(self):
        self.assertEqual(check_includes.unneeded(ROOT), [])

    def test_downwards_is_allowed(self):
        with Tree({"src/nn/model.c": '#include "tensor/kernel.h"\n#include <manta/array.h>\n#include <stdio.h>\n',
                   "src/nn/model.h": "", "src/tensor/kernel.h": "", "include/manta/array.h": ""}) as found:
            self.assertEqual(found, [])

    def assert_fails_with(self, files, *words):
        with Tree(files) as found:
            self.assertEqual(len(found), 1, found)
            for word in words:
                self.assertIn(word, found[0])

    def test_upwards_is_refused(self):
        self.assert_fails_with({"src/base/a.c": '\n#include "os/pool.h"\n', "src/os/pool.h": ""},
                            "src/base/a.c:2", "may not see os/")

    def test_sideways_is_refused(self):
        self.assert_fails_with({"src/data/a.c": '#include "nn/model.h"\n', "src/nn/model.h": ""}, "may not see nn/")

    def test_a_way_round_is_refused(self):
        self.assert_fails_with({"src/base/a.c": '#include "../os/pool.h"\n', "src/os/pool.h": ""}, "not a way there")

    def test_a_program_sees_public_headers_only(self):
        self.assert_fails_with({"src/cli/a.c": '#include <manta.h>\n#include "cli/b.h"\n#include "base/mem.h"\n',
                             "src/cli/b.h": "", "src/base/mem.h": ""}, "src/cli/a.c:3", "may not see base/")

    def test_a_public_header_obeys_its_owner(self):
        self.assert_fails_with({"include/manta/array.h": "#include <manta/train.h>\n", "include/manta/train.h": ""},
                            "belongs to train/")

    def test_a_public_header_names_no_internal_one(self):
        self.assert_fails_with({"include/manta/array.h": '#include "base/mem.h"\n', "src/base/mem.h": ""},
                            "public header")

    def test_a_public_header_needs_an_owner(self):
        self.assert_fails_with({"include/manta/whose.h": ""}, "no owner")

    def test_a_library_stays_where_it_belongs(self):
        self.assert_fails_with({"src/nn/a.c": "#include <oneapi/dnnl/dnnl.h>\n"}, "known only in tensor/")

    def test_the_futex_is_behind_the_eventcount(self):
        for line in ('#include "os/futex.h"\n', "#include <linux/futex.h>\n"):
            self.assert_fails_with({"src/train/group/a.c": line, "src/os/futex.h": ""}, "known only in os/")
            with Tree({"src/os/a.c": line, "src/os/futex.h": "", "tests/unit/task/a.c": line}) as found:
                self.assertEqual(found, [])

    def test_nobody_else_calls_the_futex(self):
        calls = re.compile(r"\bfutex_\w+\(|->futex\(|\bSYS_futex")
        found = [f"{path.relative_to(ROOT)}: {call}" for path in check_includes.sources(ROOT / "src")
                 if path.relative_to(ROOT / "src").parts[0] != "os" for call in calls.findall(path.read_text())]
        self.assertEqual(found, [])

    def test_one_file_touches_onednn(self):
        line = "#include <oneapi/dnnl/dnnl.h>\n"
        self.assert_fails_with({"src/tensor/a.c": line, "src/tensor/b.c": line}, "one file touches oneDNN")

    def test_an_unknown_folder_is_refused(self):
        self.assert_fails_with({"src/util/a.c": ""}, "src/util")

    def test_a_unit_test_sees_what_its_folder_sees(self):
        self.assert_fails_with({"tests/unit/os/pool_test.c": '#include "nn/model.h"\n', "src/nn/model.h": ""},
                            "tests/unit/os/pool_test.c:1")

    def test_rooms_are_drawn_from_bottom_to_top(self):
        for folder, rooms in check_includes.ROOMS.items():
            drawn = list(rooms)
            for room, sees in rooms.items():
                self.assertEqual([s for s in sees if s not in drawn[:drawn.index(room)]], [], f"{folder}/{room}")

    def test_a_room_sees_those_of_its_row(self):
        with Tree({"src/train/group/a.c": '#include "train/session/b.h"\n#include "train/group/c.h"\n#include "os/d.h"\n',
                   "src/train/session/b.h": "", "src/train/group/c.h": "", "src/os/d.h": "",
                   "src/format/open.c": '#include "format/csv/e.h"\n', "src/format/csv/e.h": ""}) as found:
            self.assertEqual(found, [])

    def test_a_room_above_is_refused(self):
        self.assert_fails_with({"src/train/log/a.c": '#include "train/run/b.h"\n', "src/train/run/b.h": ""},
                            "src/train/log/a.c:1", "train/log/ may not see train/run/")

    def test_the_top_of_a_folder_is_above_its_rooms(self):
        self.assert_fails_with({"src/format/csv/a.c": '#include "format/b.h"\n', "src/format/b.h": ""},
                            "format/csv/ may not see the top of format/")

    def test_a_file_needs_a_room(self):
        for name in ("src/train/a.c", "src/train/attic/a.c", "src/train/run/deep/a.c", "src/os/run/a.c"):
            self.assert_fails_with({name: ""}, name, "lies in no room")

    def test_an_exception_is_for_one_line(self):
        name, header = "src/train/session/a.c", "train/cluster/b.h"
        beside = str(pathlib.Path(name).with_name("beside.c"))
        with mock.patch.object(check_includes, "EXCEPTIONS", {(name, header): "why"}):
            with Tree({name: f'#include "{header}"\n', f"src/{header}": ""}) as found:
                self.assertEqual(found, [])
            self.assert_fails_with({beside: f'#include "{header}"\n', f"src/{header}": ""}, f"{beside}:1")

    def test_fit_knows_no_engine(self):
        for room in ("group", "cluster", "ps", "engines"):
            self.assert_fails_with({"src/train/fit/fit.c": f'#include "train/{room}/a.h"\n', f"src/train/{room}/a.h": ""},
                                f"train/fit/ may not see train/{room}/")

    def test_processes_are_started_in_os_alone(self):
        for call in ("pid_t p = fork();", "p = os->fork_quiet();", "if (waitpid(p, NULL, 0) < 0) {}",
                     "st = proc_pidfd_open(pid, &fd);", "posix_spawnp(&pid, a, b, c, d, e);"):
            self.assert_fails_with({"src/train/group/a.c": f"void f(void)\n{{\n    {call}\n}}\n"},
                                "src/train/group/a.c:3", "is for os/ alone")
            with Tree({"src/os/a.c": call}) as found:
                self.assertEqual(found, [])

    def test_what_only_looks_like_a_process_call_is_allowed(self):
        with Tree({"src/data/a.c": '/* as fork() does */\nst = s->wait(s);\nst = m.wait(s);\nlog("fork()");\n'
                                   "st = proc_pidfd_open(getpid(), &self);\nst = spawn_wait(&c);\n"}) as found:
            self.assertEqual(found, [])

    def test_a_file_that_watches_strangers_is_named(self):
        with mock.patch.object(check_includes, "PROCESSES", {"src/task/a.c": "why"}):
            with Tree({"src/task/a.c": "st = proc_pidfd_open(pid, &fd);"}) as found:
                self.assertEqual(found, [])
            self.assert_unneeded({"src/task/a.c": ""}, "PROCESSES: src/task/a.c makes no such call")

    def assert_unneeded(self, files, sentence):
        tree = Tree(files)
        with tree:
            self.assertIn(sentence, check_includes.unneeded(tree.root))

    def test_what_nothing_needs_is_told(self):
        up = {("src/train/log/a.c", "train/run/b.h"): "why"}
        down = {("src/train/run/a.c", "train/log/b.h"): "why"}
        self.assert_unneeded({}, "OWNER: there is no include/manta/data.h")
        self.assert_unneeded({}, "ROOMS: there is no src/train/run")
        self.assert_unneeded({"src/train/run/a.c": ""}, "ROOMS: train/run/ sees nothing of train/log/")
        with mock.patch.object(check_includes, "EXCEPTIONS", up):
            self.assert_unneeded({}, "EXCEPTIONS: src/train/log/a.c does not include train/run/b.h")
            self.assert_unneeded({"src/train/log/a.c": ""}, "EXCEPTIONS: src/train/log/a.c does not include train/run/b.h")
        with mock.patch.object(check_includes, "EXCEPTIONS", down):
            self.assert_unneeded({"src/train/run/a.c": '#include "train/log/b.h"\n'},
                                 "EXCEPTIONS: src/train/run/a.c may include train/log/b.h anyway")

    def test_the_closure_follows_headers(self):
        # clang-tidy's cache must notice a change two includes away.
        tree = Tree({"src/nn/a.c": '#include "nn/b.h"\n#include <stdio.h>\n', "src/nn/b.h": "#include <manta/c.h>\n",
                     "include/manta/c.h": "", "src/nn/d.h": ""})
        with tree:
            names = {p.name for p in check_includes.closure(tree.root.resolve(), tree.root / "src/nn/a.c")}
        self.assertEqual(names, {"a.c", "b.h", "c.h"})

    def test_the_build_draws_the_same_picture(self):
        text = (ROOT / "CMakeLists.txt").read_text()
        drawn = re.findall(r"^manta_folder\((\w+)\s*(?:SEES ([\w ]+?))?\s*(?:LIBS [^)]*)?\)", text, re.M)
        self.assertGreaterEqual(len(drawn), 7)
        for folder, sees in drawn:
            extra = set(sees.split()) - set(check_includes.SEES[folder])
            self.assertFalse(extra, f"CMakeLists.txt lets {folder} see {extra}")


if __name__ == "__main__":
    unittest.main()
