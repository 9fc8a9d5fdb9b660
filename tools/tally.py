#!/usr/bin/env python3
"""Adds up test results: tally.py PASSED FAILED LOG...

PASSED and FAILED are counts to start from. A LOG is meson's testlog.json or pytest's JUnit XML; of
a cmocka program each of its tests counts. A log that is missing, since its run did not even start,
is one failure. Prints the closing line and fails when anything has failed."""

import json
import re
import sys
import xml.etree.ElementTree as xml


def meson_counts(path):
    for line in open(path, encoding="utf-8"):
        run = json.loads(line)
        output = run.get("stdout", "") + "\n" + run.get("stderr", "")
        passed = len(re.findall(r"^\[ +OK \]", output, re.M))
        failed = len(re.findall(r"^\[ +FAILED +\] (?!\d+ test)", output, re.M)) // 2
        skipped = len(re.findall(r"^\[ +SKIPPED \] (?!\d+ test)", output, re.M))
        if run["result"] == "SKIP":
            skipped = max(skipped, 1)
        elif run["result"] in ("OK", "EXPECTEDFAIL"):
            passed = max(passed, 0 if skipped else 1)
        else:
            failed = max(failed, 1)
        yield passed, failed, skipped


def pytest_counts(path):
    for suite in xml.parse(path).getroot().iter("testsuite"):
        tests, errors, failures, skipped = (
            int(suite.get(name, 0)) for name in ("tests", "errors", "failures", "skipped")
        )
        yield tests - errors - failures - skipped, errors + failures, skipped


def main():
    passed, failed, skipped = int(sys.argv[1]), int(sys.argv[2]), 0
    for path in sys.argv[3:]:
        try:
            for p, f, s in (pytest_counts if path.endswith(".xml") else meson_counts)(path):
                passed, failed, skipped = passed + p, failed + f, skipped + s
        except (OSError, ValueError, xml.ParseError) as error:
            print(f"no results: {error}")
            failed += 1
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


sys.exit(main())
