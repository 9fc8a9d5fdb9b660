# /// script
# dependencies = ["guidellm==0.8.1"]
# ///
"""guidellm: a benchmark of a few requests."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from check import QUIET, URL, check


@check("a benchmark of eight requests")
def _():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        rows = [json.dumps({"prompt": f"Name {n} rivers.", "output_tokens_count": 8}) for n in range(2, 10)]
        (folder / "data.jsonl").write_text("\n".join(rows))
        command = [pathlib.Path(sys.executable).with_name("guidellm"), "benchmark", "run", "--target", URL]
        command += ["--profile", "synchronous", "--max-requests", "8", "--data", folder / "data.jsonl"]
        command += ["--outputs", "json", "--output-dir", folder]
        path = {k: os.environ[k] for k in ("PATH",)}
        subprocess.run(command, check=True, env=path | QUIET | {"HOME": str(folder)}, timeout=300)
        [report] = folder.glob("*.json")
        [run] = json.loads(report.read_text())["benchmarks"]
        assert len(run["requests"]["successful"]) == 8 and not run["requests"]["errored"]
