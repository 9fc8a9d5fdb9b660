"""Jinja2 as the transformers library sets it up to render chat templates.

Needs the package jinja2 only. Importable as a module; jinja_cases.py makes the golden tables with
it.
"""

import json
from datetime import datetime, timezone

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1700000000  # what strftime_now says, in UTC


class Generation(jinja2.ext.Extension):
    """{% generation %}: a call block whose text is printed as it is."""

    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_print")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(lineno)

    @jinja2.pass_eval_context
    def _print(self, context, caller):
        return caller()


def environment():
    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def strftime_now(format):
        return datetime.fromtimestamp(NOW, timezone.utc).replace(tzinfo=None).strftime(format)

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def render(source, variables):
    """The text, or None when Jinja2 raises; and what it raised."""
    try:
        text = environment().from_string(source).render(**variables)
        text.encode("utf-8")
        return text, None
    except Exception as error:  # whatever a template can provoke
        return None, f"{type(error).__name__}: {error}"
