// openai for Node: chat, responses, completions, their helpers, errors by class.
import OpenAI from 'openai'
import { zodResponseFormat, zodTextFormat } from 'openai/helpers/zod'
import { z } from 'zod'
import { QUESTION, URL, assert, check } from './check.mjs'

const client = new OpenAI({ baseURL: URL + '/v1', apiKey: 'any', maxRetries: 0 })
const messages = [{ role: 'user', content: QUESTION }]
const ask = { model: 'local', messages, max_tokens: 60, temperature: 0 }
const River = z.object({ long: z.boolean(), km: z.number().int().min(1).max(9) })
const parameters = {
  type: 'object', properties: { long: { type: 'boolean' } }, required: ['long'], additionalProperties: false,
}
const tools = [{ type: 'function', function: { name: 'river', parameters } }]

await check('chat, whole and streamed', async () => {
  const whole = await client.chat.completions.create(ask)
  let text = ''
  for await (const chunk of await client.chat.completions.create({ ...ask, stream: true }))
    text += chunk.choices[0]?.delta?.content ?? ''
  assert(text && text === whole.choices[0].message.content)
})

await check('chat: the stream helper, with usage', async () => {
  const stream = client.chat.completions.stream({ ...ask, stream_options: { include_usage: true } })
  let text = ''
  stream.on('content', (delta) => (text += delta))
  const final = await stream.finalChatCompletion()
  assert(final.choices[0].message.content === text && final.usage.prompt_tokens_details.cached_tokens)
})

await check('chat: a tool that must be called, by the stream helper too', async () => {
  const more = { ...ask, tools, tool_choice: 'required' }
  const [call] = (await client.chat.completions.create(more)).choices[0].message.tool_calls
  const final = await client.chat.completions.stream(more).finalChatCompletion()
  const [streamed] = final.choices[0].message.tool_calls
  assert(call.function.name === 'river' && streamed.function.arguments === call.function.arguments)
  assert('long' in JSON.parse(call.function.arguments))
})

await check('chat: runTools, to its end', async () => {
  const run = client.chat.completions.runTools({
    ...ask,
    tool_choice: { type: 'function', function: { name: 'river' } },
    tools: [{ type: 'function', function: { name: 'river', parameters, parse: JSON.parse, function: () => '1012 km' } }],
  })
  assert((await run.finalFunctionToolCallResult()) === '1012 km')
})

await check('chat: parse with a schema', async () => {
  const a = await client.chat.completions.parse({ ...ask, response_format: zodResponseFormat(River, 'river') })
  assert(typeof a.choices[0].message.parsed.long === 'boolean')
})

await check('completions, whole and streamed', async () => {
  const some = { model: 'local', prompt: 'The sun is', max_tokens: 8, temperature: 0 }
  let text = ''
  for await (const chunk of await client.completions.create({ ...some, stream: true })) text += chunk.choices[0].text
  assert(text && text === (await client.completions.create(some)).choices[0].text)
})

const respond = { model: 'local', input: QUESTION, max_output_tokens: 60, temperature: 0 }

await check('responses: whole, streamed, retrieved, deleted', async () => {
  const whole = await client.responses.create(respond)
  const final = await client.responses.stream(respond).finalResponse()
  assert(whole.output_text && final.output_text === whole.output_text)
  assert((await client.responses.retrieve(whole.id)).output_text === whole.output_text)
  await client.responses.delete(whole.id)
})

await check('responses: parse with a schema, and a tool that must be called', async () => {
  const a = await client.responses.parse({ ...respond, text: { format: zodTextFormat(River, 'river') } })
  assert(typeof a.output_parsed.long === 'boolean')
  const tool = { type: 'function', name: 'river', strict: true, parameters }
  const b = await client.responses.stream({ ...respond, tools: [tool], tool_choice: 'required' }).finalResponse()
  assert(b.output.at(-1).type === 'function_call' && 'long' in JSON.parse(b.output.at(-1).arguments))
})

await check('models', async () => {
  const list = (await client.models.list()).data
  assert((await client.models.retrieve(list[0].id)).id === list[0].id)
})

await check('errors by class', async () => {
  const fails = async (work, kind, code) => {
    const error = await work().catch((e) => e)
    assert(error instanceof kind && (!code || error.code === code), `${error}`)
  }
  await fails(() => client.chat.completions.create({ ...ask, temperature: -1 }), OpenAI.BadRequestError, 'invalid_value')
  await fails(() => client.models.retrieve('none'), OpenAI.NotFoundError)
  const long = [{ role: 'user', content: 'word '.repeat(20000) }]
  await fails(() => client.chat.completions.create({ ...ask, messages: long }), OpenAI.BadRequestError, 'context_length_exceeded')
})

await check('a stream is left', async () => {
  const stream = await client.chat.completions.create({ ...ask, max_tokens: 2000, stream: true })
  for await (const _ of stream) break
})
