import js from "@eslint/js"
import hooks from "eslint-plugin-react-hooks"
import ts from "typescript-eslint"

export default ts.config({
  files: ["src/**/*.{ts,tsx}"],
  extends: [js.configs.recommended, ...ts.configs.strictTypeChecked],
  plugins: { "react-hooks": hooks },
  languageOptions: { parserOptions: { projectService: true } },
  rules: {
    "react-hooks/rules-of-hooks": "error",
    "react-hooks/exhaustive-deps": "error",
    "@typescript-eslint/no-confusing-void-expression": ["error", { ignoreArrowShorthand: true }],
    "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
    "@typescript-eslint/no-misused-promises": ["error", { checksVoidReturn: { attributes: false } }],
  },
})
