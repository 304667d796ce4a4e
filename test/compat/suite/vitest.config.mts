import { defineConfig } from 'vitest/config'

// The suite's own configuration without its browser. Sandboxes of one machine are few: files run one after another.
const project = (name: string, include: string[], exclude: string[], testTimeout: number) => ({
  test: { name, include, exclude, testTimeout, isolate: true, environment: 'node' as const, setupFiles: ['tests/globalFetchFallback.setup.ts'] },
})

export default defineConfig({
  test: {
    fileParallelism: false,
    projects: [
      project('unit', ['tests/api/**/*.test.ts', 'tests/sandbox/**/*.test.ts'], [], 60_000),
      project('template', ['tests/template/**/*.test.ts'], [], 180_000),
    ],
  },
})
