// Filters of the table: conditions on columns, as people write them.
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
function parseFilter(text, columns) {
  const tests = [];
  for (const part of text.split(/,|;|&&?|\band\b/i).map((p) => p.trim()).filter(Boolean)) {
    const found = part.match(/^(.+?)\s*(<=|>=|!=|==|=|<|>|\bcontains\b)\s*(.+)$/i);
    if (!found) return { tests, error: `“${part}” is not a condition: write for example ${columns.find((c) => c.numeric).key} < 15` };
    const [, name, sign, value] = found;
    const column = columns.find((c) => [c.key, c.title].some((said) => said.toLowerCase() === name.toLowerCase()));
    if (!column) return { tests, error: `This table has no column “${name}”` };
    tests.push(columnTest(column, /^contains$/i.test(sign) ? value : `${sign} ${value}`));
  }
  return { tests };
}
