"use strict";
// The token is sent in a header, so that no address, history or log contains it.
history.replaceState(null, "", "/");
const field = document.getElementById("token");
const problem = document.getElementById("problem");
document.getElementById("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const token = field.value.trim();
  let answer;
  try {
    answer = await fetch("/status/sign-in", { method: "POST", headers: { Authorization: `Bearer ${token}` } });
  } catch {
    problem.textContent = "The gateway does not answer, or the token has characters that no token has.";
    return;
  }
  if (answer.ok) {
    location.replace("/");
    return;
  }
  problem.textContent = answer.status === 401 ? "This is not the gateway’s token." : `The gateway answered ${answer.status}.`;
  field.select();
});
