// Filters of the table: conditions on columns, as people write them.
const COLUMNS = [
  ...(nameMeasure ? [nameMeasure] : []),
  ...data.measures.filter((measure) => measure !== nameMeasure),
  { key: "layer", title: "layer", meaning: "Number of the layer, from 0.", numeric: true, values: data.heads.layer },
  { key: "head", title: "number in the layer", meaning: "Number of the head in its layer, from 0.", numeric: true, values: data.heads.head },
];

const COMPARE = {
  "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b, "=": (a, b) => a === b, "!=": (a, b) => a !== b,
};

// One condition on one column: "< 15", "12..20", "= 3", or words that the value contains. Null for none.
function columnTest(column, text) {
  const wanted = text.trim();
  if (!wanted) return null;
  const has = (i) => column.values[i] !== null && column.values[i] !== undefined;
  const range = wanted.match(/^(-?[\d.]+)\s*\.\.\s*(-?[\d.]+)$/);
  if (range) return (i) => has(i) && column.values[i] >= Number(range[1]) && column.values[i] <= Number(range[2]);
  const [, sign, rest] = wanted.match(/^(<=|>=|!=|==|=|<|>)?\s*(.*)$/);
  const number = Number(rest);
  if ((sign || column.numeric) && rest !== "" && !Number.isNaN(number)) {
    const compare = COMPARE[(sign || "=").replace("==", "=")];
    return (i) => has(i) && compare(Number(column.values[i]), number);
  }
  const words = rest.toLowerCase();
  const same = sign === "=" || sign === "==";
  return (i) => { const said = String(column.values[i] ?? "").toLowerCase(); return sign === "!=" ? said !== words : same ? said === words : said.includes(words); };
}

// "haar_entropy < 15, layer >= 20 and name contains previous": one test per condition, or what is wrong.
function parseFilter(text) {
  const tests = [];
  for (const part of text.split(/,|;|&&?|\band\b/i).map((p) => p.trim()).filter(Boolean)) {
    const found = part.match(/^(.+?)\s*(<=|>=|!=|==|=|<|>|\bcontains\b)\s*(.+)$/i);
    if (!found) return { tests, error: `“${part}” is not a condition: write for example haar_entropy < 15` };
    const [, name, sign, value] = found;
    const column = COLUMNS.find((c) => [c.key, c.title].some((said) => said.toLowerCase() === name.toLowerCase()));
    if (!column) return { tests, error: `There is no column “${name}”: the menu “Columns” has their names` };
    tests.push(columnTest(column, /^contains$/i.test(sign) ? value : `${sign} ${value}`));
  }
  return { tests };
}
