import js from "@eslint/js"
import ts from "typescript-eslint"

export default ts.config(
  { ignores: ["dist/", "reference/", "src/schema.ts"] },
  { files: ["src/**/*.ts"], extends: [js.configs.recommended, ...ts.configs.strictTypeChecked], languageOptions: { parserOptions: { projectService: true } } },
)
