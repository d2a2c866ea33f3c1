// Login and logout of a user of the cluster's access control.

import { change } from "/console/api.js";
import { failure, field, fill, h } from "/console/dom.js";

/** The form; `entered` is called once its user is known. */
export function login(shown, entered) {
  const user = h("input", { name: "user", autocomplete: "username", required: true });
  const secret = h("input", { name: "secret", type: "password", autocomplete: "current-password", required: true });
  const button = h("button", { type: "submit", class: "main" }, "Log in");
  const trouble = h("div", {});
  const submit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    fill(trouble);
    try {
      await change("POST", "/session", { user: user.value, secret: secret.value });
      entered();
    } catch (error) {
      fill(trouble, failure(error));
      button.disabled = false;
      secret.focus();
    }
  };
  fill(shown, h("form", { class: "login", onsubmit: submit },
    h("p", {}, "Log in as a user of the cluster. Its permissions apply here."),
    field("User", user), field("Secret", secret), trouble, h("p", {}, button)));
  user.focus();
}

/** End the session. */
export const logout = () => change("DELETE", "/session", {});
