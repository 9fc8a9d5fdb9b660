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
        command = [pathlib.Path(sys.executable).with_name("guidellm"), "run", "--disable-progress"]
        command += ["--backend", f"kind=openai_http,target={URL}", "--profile", "kind=synchronous"]
        command += ["--constraint", "kind=max_requests,count=8"]
        command += ["--data", f"kind=json_file,path={folder / 'data.jsonl'}"]
        command += ["--output", f"kind=json,path={folder / 'out.json'}"]
        path = {k: os.environ[k] for k in ("PATH",)}
        subprocess.run(command, check=True, env=path | QUIET | {"HOME": str(folder)}, timeout=300)
        [run] = json.loads((folder / "out.json").read_text())["benchmarks"]
        # One that began before guidellm's time of measurement is not counted.
        assert len(run["requests"]["successful"]) >= 7 and not run["requests"]["errored"]
