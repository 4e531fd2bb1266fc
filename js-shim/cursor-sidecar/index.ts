/** The extension's entry. pi lists an extension under the name of its folder. */
export { default } from "../src/index.ts";
