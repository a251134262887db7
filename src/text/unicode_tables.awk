# src/text/unicode_tables.awk - writes src/text/unicode_tables.c from the files of Debian's package unicode-data:
#   awk -f src/text/unicode_tables.awk /usr/share/unicode/PropList.txt /usr/share/unicode/UnicodeData.txt \
#     > src/text/unicode_tables.c
# SPDX-License-Identifier: BSD-3-Clause
BEGIN {
  for (i = 0; i < 16; i++) digit[substr("0123456789ABCDEF", i + 1, 1)] = i
  letter = 1; number = 2; space = 4; upper = 8; lower = 16; newline = 32 # enum lm_class of unicode.h
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
FILENAME ~ /PropList/ && $2 ~ /^ White_Space/ {
  n = split($1, range, /\.\.| /)
  from = hex(range[1])
  to = n > 1 && range[2] != "" ? hex(range[2]) : from
  for (c = from; c <= to; c++) of[c] = space
}

# A range is two lines, "<CJK Ideograph, First>" and "<CJK Ideograph, Last>".
FILENAME ~ /UnicodeData/ {
  c = hex($1)
  from = $2 ~ /, Last>$/ ? first + 1 : c
  first = c
  if ($3 in class) for (; from <= c; from++) of[from] += class[$3]
}

END {
  of[10] += newline
  of[13] += newline
  for (block = 0; block < 4352; block++) {
    text = ""
    for (i = 0; i < 256; i++) text = text sprintf("%d,%s", of[block * 256 + i], i % 32 == 31 ? "\n" : "")
    if (!(text in seen)) { seen[text] = n_blocks; blocks[n_blocks++] = text }
    where[block] = seen[text]
  }
  if (n_blocks > 256) { print "too many blocks for a byte" > "/dev/stderr"; exit 1 }
  print "/* src/text/unicode_tables.c - classes of characters of Unicode " version "; made by unicode_tables.awk, not by hand. */"
  print "/* SPDX-License-Identifier: BSD-3-Clause */"
  print "/* clang-format off */"
  print "#include \"text/unicode.h\"\n\nconst char lm_unicode_version[] = \"" version "\";\n"
  print "const uint8_t lm_unicode_block_of[0x1100] = {"
  for (block = 0; block < 4352; block++) printf "%d,%s", where[block], block % 32 == 31 ? "\n" : ""
  print "};\n\nconst uint8_t lm_unicode_blocks[" n_blocks + 0 "][256] = {"
  for (i = 0; i < n_blocks; i++) printf "{%s},\n", blocks[i]
  print "};"
}
