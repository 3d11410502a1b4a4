import js from "@eslint/js";
import globals from "globals";

export default [
  js.configs.recommended,
  {
    files: ["src/**/*.js"],
    languageOptions: { globals: globals.browser },
    rules: {
      eqeqeq: "error",
      "no-restricted-properties": [
        "error",
        { property: "innerHTML", message: "text nodes only" },
        { property: "outerHTML", message: "text nodes only" },
        { property: "dangerouslySetInnerHTML", message: "text nodes only" },
      ],
      "max-lines": ["error", 300],
      "no-unused-vars": ["error", { argsIgnorePattern: "^_", caughtErrors: "none" }],
      "prefer-const": "error",
    },
  },
];
