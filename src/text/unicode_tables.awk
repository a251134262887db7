# src/text/unicode_tables.awk - writes src/text/unicode_tables.c from the files of Debian's package unicode-data:
#   cd /usr/share/unicode && awk -f src/text/unicode_tables.awk PropList.txt DerivedNormalizationProps.txt UnicodeData.txt \
#     > src/text/unicode_tables.c
# SPDX-License-Identifier: BSD-3-Clause
BEGIN {
  for (i = 0; i < 16; i++) digit[substr("0123456789ABCDEF", i + 1, 1)] = i
  letter = 1; number = 2; space = 4; upper = 8; lower = 16; newline = 32; unstable = 64 # enum lm_class of unicode.h
  class["Lu"] = class["Lt"] = letter + upper
  class["Ll"] = letter + lower
  class["Lm"] = class["Lo"] = letter + upper + lower
  class["Mn"] = class["Mc"] = class["Me"] = upper + lower
  class["Nd"] = class["Nl"] = class["No"] = number
  FS = ";"
}

function hex(text,    i, value) {
  value = 0
  for (i = 1; i <= length(text); i++) value = value * 16 + digit[substr(text, i, 1)]
  return value
}

FILENAME ~ /PropList/ && FNR == 1 {
  version = $0
  sub(/^# PropList-/, "", version)
  sub(/\.txt.*/, "", version)
}
function set_range(text,    range, n) { # "0009..000D " or "0020 ": from, to
  n = split(text, range, /\.\.| /)
  from = hex(range[1])
  to = n > 1 && range[2] != "" ? hex(range[2]) : from
}

FILENAME ~ /PropList/ && $2 ~ /^ White_Space/ {
  set_range($1)
  for (c = from; c <= to; c++) of[c] = space
}
FILENAME ~ /DerivedNorm/ && $2 ~ /^ NFC_QC/ {
  set_range($1)
  for (c = from; c <= to; c++) unsettled[c] = 1
}
FILENAME ~ /DerivedNorm/ && $2 ~ /^ Full_Composition_Exclusion/ {
  set_range($1)
  for (c = from; c <= to; c++) excluded[c] = 1
}

# A range is two lines, "<CJK Ideograph, First>" and "<CJK Ideograph, Last>".
FILENAME ~ /UnicodeData/ {
  c = hex($1)
  from = $2 ~ /, Last>$/ ? first + 1 : c
  first = c
  if ($4 > 0) { ccc[n_ccc++] = sprintf("{0x%X, %d}", c, $4); unsettled[c] = 1 }
  if ($6 ~ /^[0-9A-F]/) { # canonical: one or two characters, without a <word> in front
    parts = split($6, part, " ")
    split_of[n_splits++] = sprintf("{0x%X, 0x%s, %s}", c, part[1], parts > 1 ? "0x" part[2] : 0)
    if (parts > 1 && !(c in excluded)) joined[sprintf("%06X %06X", hex(part[1]), hex(part[2]))] = c
  }
  if ($3 in class) for (; from <= c; from++) of[from] += class[$3]
}

function print_table(name, type, rows, n,    i) {
  printf "\nconst size_t lm_unicode_n_%s = %d;\nconst lm_unicode_%s lm_unicode_%ss[] = {\n", name, n, type, name
  for (i = 0; i < n; i++) printf "%s,%s", rows[i], i % 6 == 5 || i == n - 1 ? "\n" : " "
  print "};"
}

# Pairs by their first and second character.
function sort_joins(    key, i) {
  for (key in joined) {
    for (i = n_joins++; i > 0 && order[i - 1] > key; i--) order[i] = order[i - 1]
    order[i] = key
  }
  for (i = 0; i < n_joins; i++) {
    split(order[i], part, " ")
    join_of[i] = sprintf("{0x%X, 0x%X, 0x%X}", joined[order[i]], hex(part[1]), hex(part[2]))
  }
}

END {
  for (c in unsettled) of[c + 0] += unstable
  of[10] += newline
  of[13] += newline
  for (block = 0; block < 4352; block++) {
    text = ""
    for (i = 0; i < 256; i++) text = text sprintf("%d,%s", of[block * 256 + i], i % 32 == 31 ? "\n" : "")
    if (!(text in seen)) { seen[text] = n_blocks; blocks[n_blocks++] = text }
    where[block] = seen[text]
  }
  if (n_blocks > 256) { print "too many blocks for a byte" > "/dev/stderr"; exit 1 }
  print "/* src/text/unicode_tables.c - classes and compositions of characters of Unicode " version "; made by unicode_tables.awk, not by hand. */"
  print "/* SPDX-License-Identifier: BSD-3-Clause */"
  print "/* clang-format off */"
  print "#include \"text/unicode.h\"\n\nconst char lm_unicode_version[] = \"" version "\";\n"
  print "const uint8_t lm_unicode_block_of[0x1100] = {"
  for (block = 0; block < 4352; block++) printf "%d,%s", where[block], block % 32 == 31 ? "\n" : ""
  print "};\n\nconst uint8_t lm_unicode_blocks[" n_blocks + 0 "][256] = {"
  for (i = 0; i < n_blocks; i++) printf "{%s},\n", blocks[i]
  print "};"
  sort_joins()
  print_table("ccc", "ccc", ccc, n_ccc)
  print_table("split", "pair", split_of, n_splits)
  print_table("join", "pair", join_of, n_joins)
}
