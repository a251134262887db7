/* tests/cudaemu/parse.cc - the PTX that nvcc emits -> a module. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "lexer.h"
#include "ptx.h"
#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace emu
{
namespace
{
bool is_digit(char c)
{
  return isdigit((unsigned char)c) != 0;
}

bool is_type(const std::string &s)
{
  return s.size() >= 3 && s[0] == '.' && strchr("busf", s[1]) != nullptr && is_digit(s[2]);
}

int type_bytes(const std::string &s) /* ".u32": 4 */
{
  size_t digits = s.size();
  while (digits > 0 && is_digit(s[digits - 1])) digits--;
  return atoi(s.c_str() + digits) / 8;
}

Arg number(const std::string &s, bool minus)
{
  Arg a;
  const bool f32 = s.size() == 10 && s[0] == '0' && (s[1] == 'f' || s[1] == 'F');
  const bool f64 = s.size() == 18 && s[0] == '0' && (s[1] == 'd' || s[1] == 'D');
  a.is_f32 = f32;
  a.is_f64 = f64 || (!f32 && s.find('.') != std::string::npos);
  if (f32 || f64) {
    a.value = strtoull(s.c_str() + 2, nullptr, 16);
    if (minus) a.value ^= f32 ? 1ull << 31 : 1ull << 63;
  } else if (a.is_f64) {
    a.value = bits_as<u64>(minus ? -atof(s.c_str()) : atof(s.c_str()));
  } else {
    a.value = strtoull(s.c_str(), nullptr, 0);
    if (minus) a.value = 0 - a.value;
  }
  return a;
}

class Parser
{
public:
  explicit Parser(const std::string &text) : l(text), m(new Module) {}
  std::unique_ptr<Module> module();

private:
  Lexer l;
  std::unique_ptr<Module> m;
  Function *f = nullptr;
  int scope = 0, file = 0, line = 0;
  std::vector<int> outer;

  Arg operand();
  Arg memory();
  Arg list(const char *close);
  Arg name_or_number();
  int variable_type(Variable &v, int &vec);
  void variable(std::vector<Variable> &out, const std::string &space, bool external);
  void initial(Variable &v, int element);
  void one_initial(Variable &v, int element);
  void parameters(std::vector<Variable> &out);
  void function(bool entry);
  void body();
  void location();
  void registers();
  void label();
  void instruction();
  bool directive(const std::string &word);
  bool top_level(const std::string &word, bool external);
};

Arg Parser::memory()
{
  Arg a;
  a.kind = Arg::memory;
  if (is_digit(l.peek()[0])) {
    a.value = number(l.next(), false).value;
  } else {
    a.name = l.next();
  }
  while (l.peek() == "+" || l.peek() == "-") {
    bool minus = l.next() == "-";
    if (l.accept("-")) minus = !minus;
    const u64 v = number(l.next(), false).value;
    a.value += minus ? 0 - v : v;
  }
  while (l.accept(",")) a.parts.push_back(operand());
  l.expect("]");
  return a;
}

Arg Parser::list(const char *close)
{
  Arg a;
  a.kind = Arg::vector;
  if (l.accept(close)) return a;
  do a.parts.push_back(operand());
  while (l.accept(","));
  l.expect(close);
  return a;
}

Arg Parser::name_or_number()
{
  const bool minus = l.accept("-");
  const std::string s = l.next();
  if (is_digit(s[0])) return number(s, minus);
  Arg a;
  a.kind = s[0] == '%' ? Arg::reg : Arg::symbol;
  a.name = s;
  a.negated = minus;
  if (a.kind == Arg::symbol && l.accept("+")) a.value = number(l.next(), false).value;
  return a;
}

Arg Parser::operand()
{
  if (l.accept("[")) return memory();
  if (l.accept("{")) return list("}");
  if (l.accept("(")) return list(")");
  if (l.accept("!")) {
    Arg a = operand();
    a.negated = true;
    return a;
  }
  Arg a = name_or_number();
  if (!l.accept("|")) return a;
  Arg both;
  both.kind = Arg::pair;
  both.parts.push_back(a);
  both.parts.push_back(operand());
  return both;
}

/* [.align N] [.ptr [.space] [.align N]] [.v2|.v4] .type: bytes of an element. */
int Parser::variable_type(Variable &v, int &vec)
{
  int element = 4;
  vec = 1;
  while (l.peek()[0] == '.') {
    const std::string s = l.next();
    if (s == ".align") {
      v.align = (u32)l.number();
    } else if (s == ".ptr") {
      for (const char *space : {".global", ".const", ".shared", ".local"}) l.accept(space);
      if (l.accept(".align")) l.next();
    } else if (s == ".v2" || s == ".v4") {
      vec = s[2] - '0';
    } else if (is_type(s)) {
      element = type_bytes(s);
    }
  }
  return element;
}

void Parser::variable(std::vector<Variable> &out, const std::string &space, bool external)
{
  Variable v;
  int vec;
  v.space = space;
  v.external = external;
  const int element = variable_type(v, vec);
  v.name = l.next();
  u64 count = 1;
  while (l.accept("[")) {
    count = l.peek() == "]" ? 0 : count * strtoull(l.next().c_str(), nullptr, 0);
    l.expect("]");
  }
  v.align = std::max(v.align, (u32)(space == ".param" ? element : element * vec));
  v.size = count * (u64)(element * vec);
  if (l.accept("=")) initial(v, element);
  out.push_back(v);
}

void Parser::one_initial(Variable &v, int element)
{
  Arg a;
  if (l.accept("generic")) {
    l.expect("(");
    a = operand();
    l.expect(")");
  } else {
    a = name_or_number();
  }
  if (a.kind == Arg::symbol) {
    v.addresses.push_back({v.init.size(), a.name});
    v.init.resize(v.init.size() + 8);
  } else {
    for (int k = 0; k < element; k++) v.init.push_back((u8)(a.value >> (8 * k)));
  }
}

void Parser::initial(Variable &v, int element)
{
  int depth = 0;
  do {
    if (l.accept("{")) {
      depth++;
    } else if (l.accept("}")) {
      depth--;
    } else if (!l.accept(",")) {
      one_initial(v, element);
    }
  } while (depth > 0);
}

void Parser::parameters(std::vector<Variable> &out)
{
  l.expect("(");
  while (!l.accept(")")) {
    l.next(); /* .param or .reg: both are passed in memory */
    variable(out, ".param", false);
    l.accept(",");
  }
}

/* .loc FILE LINE COLUMN [, function_name X, inlined_at FILE LINE COLUMN]: where the outermost call stands. */
void Parser::location()
{
  file = l.number();
  line = l.number();
  l.next();
  while (l.accept(",")) {
    if (l.next() == "function_name") {
      l.next();
      if (l.accept("+")) l.next();
    } else {
      file = l.number();
      line = l.number();
      l.next();
    }
  }
}

void Parser::registers()
{
  std::string type = l.next();
  while (type == ".v2" || type == ".v4") type = l.next();
  const int bytes = type == ".pred" ? 1 : std::max(4, type_bytes(type));
  do {
    const std::string name = l.next();
    if (l.accept("<")) {
      const int n = l.number();
      l.expect(">");
      for (int i = 0; i < n; i++) f->scopes[(size_t)scope].registers[name + std::to_string(i)] = bytes;
    } else {
      f->scopes[(size_t)scope].registers[name] = bytes;
    }
  } while (l.accept(","));
  l.expect(";");
}

void Parser::label()
{
  Statement s;
  s.label = l.next();
  s.scope = scope;
  l.expect(":");
  if (l.accept(".branchtargets")) {
    do s.args.push_back(operand());
    while (l.accept(","));
    l.expect(";");
  } else if (l.peek() == ".callprototype") {
    l.skip_past(";");
  }
  f->body.push_back(s);
}

void Parser::instruction()
{
  Statement s;
  s.file = file;
  s.line = line;
  s.scope = scope;
  if (l.accept("@")) {
    s.guard_negated = l.accept("!");
    s.guard = l.next();
  }
  s.op = l.next();
  if (l.peek() != ";") {
    do s.args.push_back(operand());
    while (l.accept(","));
  }
  l.expect(";");
  f->body.push_back(s);
}

/* What stands in a body and is no instruction. */
bool Parser::directive(const std::string &word)
{
  if (word == ".loc") {
    l.next();
    location();
  } else if (word == ".reg") {
    l.next();
    registers();
  } else if (word == ".pragma") {
    l.skip_past(";");
  } else if (word == ".shared" || word == ".local" || word == ".param") {
    l.next();
    variable(f->locals, word, false);
    l.expect(";");
  } else {
    return false;
  }
  return true;
}

void Parser::body()
{
  scope = 0;
  f->scopes.emplace_back();
  for (outer.clear();;) {
    const std::string word = l.peek();
    if (word == "{") {
      l.next();
      outer.push_back(scope);
      f->scopes.emplace_back();
      f->scopes.back().parent = scope;
      scope = (int)f->scopes.size() - 1;
    } else if (word == "}") {
      l.next();
      if (outer.empty()) return;
      scope = outer.back();
      outer.pop_back();
    } else if (l.peek(1) == ":") {
      label();
    } else if (!directive(word)) {
      instruction();
    }
  }
}

void Parser::function(bool entry)
{
  auto made = std::make_unique<Function>();
  f = made.get();
  f->entry = entry;
  while (l.peek() == ".noreturn" || l.peek() == ".attribute")
    if (l.next() == ".attribute") l.skip_past(")");
  if (l.peek() == "(") parameters(f->results);
  f->name = l.next();
  if (l.peek() == "(") parameters(f->params);
  while (l.peek() != "{" && l.peek() != ";" && !l.peek().empty()) {
    const std::string word = l.next();
    if (word != ".maxntid" && word != ".reqntid") continue;
    f->exact_threads = word == ".reqntid";
    for (int &n : f->max_threads) n = 1;
    for (int k = 0; k == 0 || (k < 3 && l.accept(",")); k++) f->max_threads[k] = l.number();
  }
  if (l.accept(";")) return; /* a declaration */
  l.expect("{");
  body();
  m->functions[f->name] = std::move(made);
}

bool Parser::top_level(const std::string &word, bool external)
{
  if (word == ".target") {
    m->target = l.next();
  } else if (word == ".file") {
    const int n = l.number();
    const std::string name = l.next();
    m->files[n] = name.substr(1, name.size() - 2);
  } else if (word == ".section") {
    l.skip_past("}");
  } else if (word == ".global" || word == ".const" || word == ".shared") {
    variable(m->variables, word, external);
    l.expect(";");
  } else if (word == ".entry" || word == ".func") {
    function(word == ".entry");
  } else {
    return false; /* .version 9.0, .visible ... */
  }
  return true;
}

std::unique_ptr<Module> Parser::module()
{
  bool external = false;
  while (!l.peek().empty()) {
    const std::string word = l.next();
    if (word == ".extern") external = true;
    if (top_level(word, external)) external = false;
  }
  return std::move(m);
}

std::string to_text(const Arg &a)
{
  const std::string more = a.value ? "+" + std::to_string((s64)a.value) : "";
  switch (a.kind) {
  case Arg::memory: return "[" + a.name + more + "]";
  case Arg::vector: return a.parts.empty() ? "{}" : "{" + to_text(a.parts[0]) + (a.parts.size() > 1 ? ", ..}" : "}");
  case Arg::pair: return to_text(a.parts[0]) + "|" + to_text(a.parts[1]);
  case Arg::immediate:
    if (a.is_f32) return std::to_string(as_float((u32)a.value));
    return a.is_f64 ? std::to_string(bits_as<double>(a.value)) : std::to_string((s64)a.value);
  default: return (a.negated ? "!" : "") + a.name + more;
  }
}
} // namespace

std::string to_text(const Statement &s)
{
  std::string t;
  if (!s.guard.empty()) t = "@" + std::string(s.guard_negated ? "!" : "") + s.guard + " ";
  t += s.op;
  for (size_t k = 0; k < s.args.size(); k++) t += (k ? ", " : " ") + to_text(s.args[k]);
  return t;
}

std::unique_ptr<Module> parse_ptx(const std::string &text)
{
  return Parser(text).module();
}
} // namespace emu
