#!/usr/bin/env python3
"""Measures what the prefix cache promises, in pairs, on servers that it starts itself.

    cache_pairs.py --incipit build/src/cli/incipit [-m MODEL.gguf] [--pairs 20] [--save NAME]

  warm / cold          TTFT of a prompt seen before, over its TTFT when it was new
  first / later hits   TTFT of the first hit, over that of the hits after it
  no hit / no cache    TTFT of new prompts, with the cache over with --no-cache
  herd                 eight clients, one cold prompt, eight tails at once, over one such request
  pause                longest gap between a client's tokens while another prompt is prefilled

Medians with 95 % intervals (bootstrap). Standard library only."""
import argparse, datetime, http.client, json, os, pathlib, random, signal, socket, statistics, subprocess, sys
import threading, time

N_VOCAB = 40000  # ids below it are ordinary tokens of the default model
LULL = 0.6  # seconds between pairs, in which an idle server may do its chores, and not in the other's time


class Server:
    def __init__(self, a, *options):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        args = [a.incipit, "serve", "--port", str(self.port), "--cache-ram", a.cache_ram, *options]
        if a.model:
            args += ["-m", a.model]
        self.process = subprocess.Popen(args, stderr=subprocess.DEVNULL)
        for _ in range(600):
            try:
                if self.get("/health") == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        sys.exit("the server does not answer")

    def get(self, path):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        c.request("GET", path)
        return c.getresponse().status

    def complete(self, ids, n=1, stamps=None):
        """Seconds until the first token, and cached tokens."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        body = json.dumps({"prompt": ids, "max_tokens": n, "temperature": 0, "stream": True, "ignore_eos": True,
                           "stream_options": {"include_usage": True}})
        begun = time.perf_counter()
        c.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        reply, first, cached = c.getresponse(), None, None
        assert reply.status == 200, reply.read(300)
        for line in reply:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if event["choices"]:
                now = time.perf_counter()
                first = first or now - begun
                if stamps is not None:
                    stamps.append(now)
            elif event.get("usage"):
                cached = event["usage"]["prompt_tokens_details"]["cached_tokens"]
        c.close()
        return first, cached

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


def prompt(n):
    return [random.randrange(1000, N_VOCAB) for _ in range(n)]


def interval(values):
    draws = sorted(statistics.median(random.choices(values, k=len(values))) for _ in range(2000))
    return draws[50], draws[1949]


def together(calls):
    threads = [threading.Thread(target=c) for c in calls]
    for t in threads: t.start()
    for t in threads: t.join()


def hits(server, a, out):
    for _ in range(a.pairs):
        ids = prompt(a.tokens)
        time.sleep(LULL)
        cold, cached = server.complete(ids)
        assert cached == 0
        times = []
        for _ in range(4):
            t, cached = server.complete(ids)
            assert cached == len(ids) - 1, cached
            times.append(t)
        out.setdefault("warm / cold", []).append(statistics.median(times) / cold)
        out.setdefault("first / later hits", []).append(times[0] / statistics.median(times[1:]))


def overhead(server, plain, a, out):
    for i in range(max(a.pairs, 50)):
        t = {}
        for s in ((server, plain) if i % 2 else (plain, server)):
            time.sleep(LULL)
            t[s] = s.complete(prompt(512))[0]
        out.setdefault("no hit / no cache", []).append(t[server] / t[plain])


def herd(server, a, out):
    for _ in range(3):
        ids, begun = prompt(a.tokens), time.perf_counter()
        server.complete(ids + prompt(12), 8)
        one = time.perf_counter() - begun
        ids, begun = prompt(a.tokens), time.perf_counter()
        together([lambda tail=prompt(12): server.complete(ids + tail, 8) for _ in range(8)])
        out.setdefault("herd", []).append((time.perf_counter() - begun) / one)


def pause(server, a, out):
    for _ in range(3):
        stamps = []
        def intrude():
            while len(stamps) < 16:
                time.sleep(0.005)
            server.complete(prompt(a.tokens))
        together([lambda: server.complete(prompt(64), 256, stamps), intrude])
        out.setdefault("pause ms", []).append(max(b - x for x, b in zip(stamps[8:], stamps[9:])) * 1e3)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--incipit", default="build/src/cli/incipit")
    p.add_argument("-m", "--model", help="a GGUF file (the default model)")
    p.add_argument("--tokens", type=int, default=4000)
    p.add_argument("--pairs", type=int, default=20)
    p.add_argument("--cache-ram", default="4G")
    p.add_argument("--save", help="a name: the figures go to bench/results/NAME.json")
    a = p.parse_args()
    server, plain, out = Server(a), Server(a, "--no-cache"), {}
    try:
        for s in (server, plain):
            s.complete(prompt(64), 4)  # first touch of the weights
        time.sleep(5)  # and of pages ahead
        for work in (lambda: hits(server, a, out), lambda: overhead(server, plain, a, out),
                     lambda: herd(server, a, out), lambda: pause(server, a, out)):
            work()
    finally:
        server.stop()
        plain.stop()
    for name, values in out.items():
        low, high = interval(values)
        print(f"{name:22}{statistics.median(values):9.4f}   ({low:.4f} to {high:.4f}, {len(values)} pairs)")
    if a.save:
        folder = pathlib.Path(__file__).parent / "results"
        folder.mkdir(exist_ok=True)
        cpu = next(l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name"))
        (folder / f"{a.save}.json").write_text(json.dumps(
            {"date": datetime.date.today().isoformat(), "cpu": f"{cpu}, {os.cpu_count()} CPUs", "tokens": a.tokens,
             "figures": out}, indent=1) + "\n")


if __name__ == "__main__":
    main()
