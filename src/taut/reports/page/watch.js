"use strict";
// Shows what the search has reached, again and again, until nothing answers: the search has ended then.
const PAUSE_MS = 500;

async function look() {
  try {
    const answer = await fetch("now", { cache: "no-store" });
    document.querySelector("main").innerHTML = await answer.text();
    setTimeout(look, PAUSE_MS);
  } catch {
    document.getElementById("state").textContent = "The search has ended.";
  }
}

look();
