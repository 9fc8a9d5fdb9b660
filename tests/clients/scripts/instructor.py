# /// script
# dependencies = ["instructor==1.17.0", "openai==3.3.0"]
# ///
"""Instructor: objects in every mode that asks for a schema."""

import instructor
from openai import OpenAI
from pydantic import BaseModel, Field

from check import URL, check


class River(BaseModel):
    long: bool
    km: int = Field(ge=1, le=9)


ASK = {"model": "local", "messages": [{"role": "user", "content": "The Loire?"}], "max_tokens": 80}

for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA, instructor.Mode.RESPONSES_TOOLS):

    @check(f"an object, {mode.name}")
    def _():
        client = instructor.from_openai(OpenAI(base_url=URL + "/v1", api_key="any"), mode=mode)
        ask = ASK | {"max_retries": 1}
        if mode == instructor.Mode.RESPONSES_TOOLS:
            ask.pop("max_tokens")
        assert isinstance(client.chat.completions.create(response_model=River, **ask), River)


@check("a stream of partial objects")
def _():
    client = instructor.from_openai(
        OpenAI(base_url=URL + "/v1", api_key="any"), mode=instructor.Mode.JSON_SCHEMA
    )
    *_, last = client.chat.completions.create_partial(response_model=River, **ASK)
    assert River(**last.model_dump())
