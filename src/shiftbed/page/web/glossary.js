// Ten words that the page uses, each explained in a sentence or two and linked where it is first used.

const WORDS = {
  shift: ["Shift", "Two test sets with the same classes: ordinary images (ID) and images that differ in a way the model was not trained for (OOD), such as ImageNet and photographs taken anew (ImageNetV2)."],
  id: ["ID accuracy", "In distribution: the share of ordinary test images that a model gets right, on images like those it was trained on."],
  ood: ["OOD accuracy", "Out of distribution: the share it gets right on the shifted test set. Where the shifted set has only some of the classes, ID accuracy is taken on those classes too (the class twin)."],
  baseline: ["Baseline models", "Ordinary models: trained on the ordinary data without anything meant to make them robust. The line goes through them and nothing else."],
  line: ["The line", "What OOD accuracy the ID accuracy of ordinary models predicts: a straight line through the baseline models on the logit scale. Better ordinary models move along it, not above it."],
  rho: ["Effective robustness ρ", "OOD accuracy minus what the line predicts from ID accuracy, in points of accuracy: how far above (+) or below (−) the line a model is. Zero means: as robust as its accuracy predicts, no more."],
  interval: ["Interval", "Where ρ would lie, 95 times in 100, if all test images were drawn anew: how precisely it is measured. It counts the noise of both test sets and of the line."],
  out: ["Out of line", "Further from the line than another ordinary model would hardly ever fall: the difference is not scatter. Of the models called so, 5 in 100 may be by chance (false discovery rate)."],
  trust: ["Trusted line", "Nothing that is checked speaks against the line: enough models over a wide range, a straight scatter, no single model or family that turns it. Where something does, ρ is shown with the reason."],
  logit: ["Logit scale", "An axis of log(p / (1 − p)), which spreads accuracies near 0 and 100 %. On it, accuracies of many models fall on a straight line; on an ordinary axis they bend."],
};

/** A word that leads to its explanation, which pointing at it shows as well. */
const term = (word, text) =>
  make("a", { class: "term", href: address({ ...DEFAULTS, view: "glossary", word }), title: WORDS[word][1] }, text ?? WORDS[word][0]);

function glossaryView(host) {
  const list = make("dl", { class: "glossary" });
  for (const [word, [name, text]] of Object.entries(WORDS)) {
    const here = state.word === word ? "true" : null;
    list.append(make("dt", { id: `word-${word}`, "aria-current": here }, name), make("dd", {}, text));
  }
  fill(host, list, make("p", { class: "small" }, "The formulas, with their papers, are in the documentation (Statistics)."));
  host.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
}

views.set("glossary", { title: "Glossary", group: "Answer", question: "What do the words mean?", show: glossaryView, possible: () => DATA.shifts.length > 0 });
