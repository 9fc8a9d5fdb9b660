// check.py's part for scripts of Node.
import process from 'node:process'

export const URL = process.env.INCIPIT_URL ?? 'http://127.0.0.1:8080'
export const QUESTION = 'Name three rivers of France.'

export function assert(truth, what = 'it is not so') {
  if (!truth) throw new Error(what)
}

export async function check(what, work) {
  try {
    await work()
    console.log('ok', what)
  } catch (failure) {
    console.error(failure)
    console.log(`failed ${what}: ${String(failure).split('\n')[0].slice(0, 160)}`)
  }
}
