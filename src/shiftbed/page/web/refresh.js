
// Served by `shiftbed serve`: asks now and then whether there is anything new, and loads it then. What
// is shown stays: it is in the address.

const EVERY = 4000;
let seen = document.documentElement.dataset.stamp ?? null;

async function look() {
  try {
    const answer = await fetch("version", { cache: "no-store" });
    if (answer.ok) {
      const { stamp } = await answer.json();
      if (seen !== null && stamp !== seen) location.reload();
      seen = stamp;
    }
  } catch {
    // The server is away: what is on the page stays.
  }
  setTimeout(look, EVERY);
}
look();
