// The Vercel AI SDK with three providers over all four routes.
import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateText, Output, streamText, tool } from 'ai'
import { z } from 'zod'
import { QUESTION, URL, assert, check } from './check.mjs'

const openai = createOpenAI({ baseURL: URL + '/v1', apiKey: 'any' })
const compatible = createOpenAICompatible({
  name: 'incipit', baseURL: URL + '/v1', supportsStructuredOutputs: true, includeUsage: true,
})
const anthropic = createAnthropic({ baseURL: URL + '/v1', apiKey: 'any' })
const models = {
  'openai-compatible': compatible('local'),
  'openai, chat': openai.chat('local'),
  'openai, responses': openai.responses('local'),
  anthropic: anthropic('local'),
}
const River = z.object({ long: z.boolean(), km: z.number().int().min(1).max(9) })
const river = tool({ description: 'Tells of a river.', inputSchema: z.object({ long: z.boolean() }) })

for (const [name, model] of Object.entries(models)) {
  const ask = { model, prompt: QUESTION, maxOutputTokens: 60, maxRetries: 0 }

  await check(`${name}: generateText and streamText, usage with cached tokens`, async () => {
    const whole = await generateText(ask)
    assert(whole.text && whole.usage.inputTokens > 0)
    let text = ''
    const stream = streamText({ ...ask, onError: ({ error }) => { throw error } })
    for await (const part of stream.textStream) text += part
    const usage = await stream.usage
    assert(text && usage.inputTokens === whole.usage.inputTokens, 'usage')
    assert(usage.inputTokenDetails.cacheReadTokens === usage.inputTokens - 1, JSON.stringify(usage))
  })

  await check(`${name}: a tool that must be called, whole and streamed`, async () => {
    const more = { ...ask, tools: { river }, toolChoice: 'required' }
    const [call] = (await generateText(more)).toolCalls
    const [streamed] = await streamText(more).toolCalls
    assert(typeof call.input.long === 'boolean' && typeof streamed.input.long === 'boolean')
  })

  await check(`${name}: an object by its schema`, async () => {
    const a = await generateText({ ...ask, output: Output.object({ schema: River }) })
    assert(typeof a.output.long === 'boolean')
  })
}
