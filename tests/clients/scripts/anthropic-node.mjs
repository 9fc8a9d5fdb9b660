// @anthropic-ai/sdk: messages, its helpers, tools, errors by class.
import Anthropic from '@anthropic-ai/sdk'
import { QUESTION, URL, assert, check } from './check.mjs'

const client = new Anthropic({ baseURL: URL, apiKey: 'any', maxRetries: 0 })
const messages = [{ role: 'user', content: QUESTION }]
const ask = { model: 'local', messages, max_tokens: 60 }
const input_schema = {
  type: 'object', properties: { long: { type: 'boolean' } }, required: ['long'], additionalProperties: false,
}
const tools = [{ name: 'river', input_schema }]
const total = (u) => u.input_tokens + u.cache_read_input_tokens + u.cache_creation_input_tokens

await check('messages, and the stream helper', async () => {
  const whole = await client.messages.create(ask)
  const stream = client.messages.stream(ask)
  let text = ''
  stream.on('text', (delta) => (text += delta))
  const final = await stream.finalMessage()
  assert(whole.content[0].text && final.content[0].text === text)
  assert(total(final.usage) === total(whole.usage) && final.usage.cache_read_input_tokens > 0)
})

await check('countTokens', async () => {
  const { input_tokens } = await client.messages.countTokens({ model: 'local', messages })
  assert(input_tokens === total((await client.messages.create(ask)).usage))
})

await check('a tool that must be called, whole and streamed', async () => {
  const more = { ...ask, tools, tool_choice: { type: 'any' } }
  for (const m of [await client.messages.create(more), await client.messages.stream(more).finalMessage()]) {
    const use = m.content.at(-1)
    assert(m.stop_reason === 'tool_use' && use.name === 'river' && typeof use.input.long === 'boolean')
  }
})

await check('a schema', async () => {
  const m = await client.messages.create({ ...ask, output_config: { format: { type: 'json_schema', schema: input_schema } } })
  assert(typeof JSON.parse(m.content[0].text).long === 'boolean')
})

await check('a cached prompt with breakpoints and diagnostics', async () => {
  const system = [{ type: 'text', text: 'Be brief. '.repeat(40), cache_control: { type: 'ephemeral' } }]
  const first = await client.beta.messages.create({ ...ask, system })
  const second = await client.beta.messages.create({
    ...ask, system, diagnostics: { previous_message_id: first.id },
    messages: [...messages, { role: 'assistant', content: first.content }, { role: 'user', content: 'More.' }],
  })
  assert(second.usage.cache_read_input_tokens >= total(first.usage) - 1)
})

await check('errors by class', async () => {
  const fails = async (more, kind, word) => {
    const error = await client.messages.create({ ...ask, ...more }).catch((e) => e)
    assert(error instanceof kind && String(error).includes(word), `${error}`)
  }
  await fails({ messages: [] }, Anthropic.BadRequestError, 'messages')
  await fails({ max_tokens: undefined }, Anthropic.BadRequestError, 'max_tokens')
  await fails({ messages: [{ role: 'user', content: 'word '.repeat(20000) }] }, Anthropic.BadRequestError, 'prompt is too long')
})
