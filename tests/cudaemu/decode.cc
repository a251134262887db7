/* tests/cudaemu/decode.cc - registers, constants, symbols and labels of a kernel; a decoder for each statement. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "decode.h"
#include <algorithm>
#include <cstdio>
#include <stdexcept>

namespace emu
{
/* --- types and names --- */

Type type_of(const std::string &word)
{
  static const std::unordered_map<std::string, Type> types = {
      {"u8", Type::u8},   {"b8", Type::u8},       {"s8", Type::s8},        {"u16", Type::u16},   {"b16", Type::u16},
      {"s16", Type::s16}, {"u32", Type::u32},     {"b32", Type::u32},      {"s32", Type::s32},   {"u64", Type::u64},
      {"b64", Type::u64}, {"s64", Type::s64},     {"f16", Type::f16},      {"bf16", Type::bf16}, {"f32", Type::f32},
      {"f64", Type::f64}, {"f16x2", Type::f16x2}, {"bf16x2", Type::bf16x2}};
  auto t = types.find(word);
  return t == types.end() ? Type::none : t->second;
}

int bytes_of(Type t)
{
  static const int bytes[] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 4, 4, 0};
  return bytes[(int)t];
}

bool is_float(Type t)
{
  return t >= Type::f16 && t <= Type::f64;
}

bool is_half(Type t)
{
  return t == Type::f16 || t == Type::bf16 || is_packed(t);
}

bool is_bf16(Type t)
{
  return t == Type::bf16 || t == Type::bf16x2;
}

bool is_packed(Type t)
{
  return t == Type::f16x2 || t == Type::bf16x2;
}

bool is_signed(Type t)
{
  return t == Type::s8 || t == Type::s16 || t == Type::s32 || t == Type::s64;
}

Special special_of(const std::string &name)
{
  static const char *const names[] = {"%tid.x",
                                      "%tid.y",
                                      "%tid.z",
                                      "%ntid.x",
                                      "%ntid.y",
                                      "%ntid.z",
                                      "%ctaid.x",
                                      "%ctaid.y",
                                      "%ctaid.z",
                                      "%nctaid.x",
                                      "%nctaid.y",
                                      "%nctaid.z",
                                      "%laneid",
                                      "%warpid",
                                      "%nwarpid",
                                      "%smid",
                                      "%nsmid",
                                      "%lanemask_eq",
                                      "%lanemask_lt",
                                      "%lanemask_le",
                                      "%lanemask_gt",
                                      "%lanemask_ge",
                                      "%dynamic_smem_size",
                                      "%total_smem_size",
                                      "%cluster_ctarank",
                                      "%cluster_nctarank",
                                      "%gridid",
                                      "%clock",
                                      "%clock_hi",
                                      "%clock64",
                                      "%globaltimer"};
  const auto at = std::find(std::begin(names), std::end(names), name);
  return (Special)(at - std::begin(names)); /* past the last one: Special::none */
}

/* --- what decoders ask --- */

bool Decoder::has(const char *word) const
{
  return std::find(words.begin() + 1, words.end(), word) != words.end();
}

std::vector<Type> Decoder::types() const
{
  std::vector<Type> r;
  for (const std::string &word : words)
    if (type_of(word) != Type::none) r.push_back(type_of(word));
  return r;
}

Type Decoder::type() const
{
  const std::vector<Type> all = types();
  return all.empty() ? Type::none : all.back();
}

Space Decoder::space() const
{
  if (has("shared") || has("shared::cta")) return Space::shared;
  if (has("local")) return Space::local;
  if (has("param") || has("param::entry")) return Space::param;
  if (has("shared::cluster") && !has("bulk")) throw Unsupported{"shared memory of a cluster"};
  return Space::global;
}

u8 Decoder::flags() const
{
  return (u8)((has("ftz") ? flush_subnormals : 0) | (has("sat") ? saturate : 0) | (has("relu") ? relu : 0));
}

const Arg &Decoder::arg(size_t n) const
{
  if (n >= s->args.size()) throw Unsupported{"operands"};
  return s->args[n];
}

u32 Decoder::take_registers(u32 bytes, u32 align)
{
  k.register_bytes = (k.register_bytes + align - 1) / align * align;
  const u32 at = k.register_bytes;
  k.register_bytes += bytes;
  return at;
}

/* Constants are stored as 32 equal lanes, so that handlers need not tell them from registers. */
Operand Decoder::constant(u64 value, int size)
{
  const auto key = std::make_pair(value, size);
  auto it = constant_at.find(key);
  if (it == constant_at.end()) {
    const u32 at = (u32)k.constants.size(), bits = value ? ~0u : 0;
    k.constants.resize(at + (size == 1 ? 64 : 32 * (size_t)size));
    if (size == 1) memcpy(&k.constants[at], &bits, sizeof bits);
    for (int l = 0; size > 1 && l < 32; l++) memcpy(&k.constants[at + (u32)(l * size)], &value, (size_t)size);
    it = constant_at.emplace(key, at).first;
  }
  return {it->second, 1, (u8)size};
}

Operand Decoder::special(Special which)
{
  const bool wide = which == Special::dynamic_base64;
  auto it = special_at.find(which);
  if (it == special_at.end()) {
    it = special_at.emplace(which, take_registers(wide ? 256 : 128, 64)).first;
    k.specials.push_back({it->second, which});
  }
  return {it->second, 0, (u8)(wide ? 8 : 4)};
}

Operand Decoder::carry()
{
  if (carry_flag.size == 0) carry_flag = {take_registers(4, 4), 0, 1};
  return carry_flag;
}

bool Decoder::is_declared(const std::string &name) const
{
  for (int sc = s->scope; sc >= 0; sc = frame->function->scopes[(size_t)sc].parent)
    if (frame->function->scopes[(size_t)sc].registers.count(name)) return true;
  return false;
}

Operand Decoder::reg(const std::string &name)
{
  const Special sp = special_of(name);
  if (sp < Special::none) return special(sp);
  for (int sc = s->scope; sc >= 0; sc = frame->function->scopes[(size_t)sc].parent) {
    const auto declared = frame->function->scopes[(size_t)sc].registers.find(name);
    if (declared == frame->function->scopes[(size_t)sc].registers.end()) continue;
    auto &known = frame->registers[(size_t)sc];
    const auto it = known.find(name);
    if (it != known.end()) return it->second;
    const int size = declared->second;
    const Operand o = {size == 1 ? take_registers(4, 4) : take_registers(32 * (u32)size, 64), 0, (u8)size};
    return known.emplace(name, o).first->second;
  }
  throw Unsupported{"the register " + name};
}

void Decoder::place_shared(const Variable &v)
{
  if (v.external || shared_at.count(v.name)) return;
  /* A gap before each array: what runs past one does not land in the next. Tiles of tensor copies want 1024 bytes. */
  const u32 align = std::max<u32>(v.align, v.size >= 1024 ? 1024 : 16);
  const u32 at = (k.static_shared + 64 + align - 1) / align * align;
  shared_at[v.name] = at;
  k.shared.push_back({at, (u32)v.size, v.name});
  k.static_shared = at + (u32)v.size;
}

bool Decoder::find_symbol(const std::string &name, Symbol &symbol)
{
  const auto local = frame->local.find(name);
  if (local != frame->local.end()) return symbol = {local->second, Space::local, false}, true;
  const auto param = k.param_offset.find(name);
  if (param != k.param_offset.end()) return symbol = {param->second, Space::param, false}, true;
  for (const Variable &v : module.variables)
    if (v.name == name) {
      if (v.space != ".shared") return symbol = {module.address[name], Space::global, false}, true;
      if (v.external) return symbol = {0, Space::shared, true}, true;
      place_shared(v);
    }
  const auto shared = shared_at.find(name);
  if (shared != shared_at.end()) return symbol = {shared->second, Space::shared, false}, true;
  return false;
}

Operand Decoder::symbol_operand(const Arg &a, int size)
{
  Symbol symbol;
  if (a.name == "_") return {};
  if (a.name == "WARP_SZ") return constant(32, size);
  if (!find_symbol(a.name, symbol)) throw Unsupported{"the name " + a.name};
  if (!symbol.dynamic_shared) return constant(symbol.value + a.value, size);
  if (a.value) throw Unsupported{"an offset in dynamic shared memory"};
  return special(size == 8 ? Special::dynamic_base64 : Special::dynamic_base);
}

Operand Decoder::operand(const Arg &a, int size)
{
  if (a.kind == Arg::reg || (a.kind == Arg::symbol && is_declared(a.name))) return reg(a.name);
  if (a.kind == Arg::symbol) return symbol_operand(a, size);
  if (a.kind != Arg::immediate) throw Unsupported{"operands"};
  u64 v = a.value;
  if (size == 8 && a.is_f32) v = bits_as<u64>((double)as_float((u32)v));
  if (size == 4 && a.is_f64) v = as_bits((float)bits_as<double>(v));
  return constant(size == 4 ? (u32)v : v, size);
}

void Decoder::operands(std::vector<Operand> &to, const Arg &a, int size)
{
  if (a.kind != Arg::vector) return to.push_back(operand(a, size));
  for (const Arg &part : a.parts) to.push_back(operand(part, size));
}

Operand Decoder::address(const Arg &a, s64 &offset, Space &where)
{
  Symbol symbol;
  if (a.kind != Arg::memory) throw Unsupported{"operands: an address is wanted"};
  offset = (s64)a.value;
  if (a.name.empty()) return constant(0, 8);
  if (a.name[0] == '%' || is_declared(a.name)) return reg(a.name);
  if (!find_symbol(a.name, symbol)) throw Unsupported{"the name " + a.name};
  if (symbol.space != Space::global) where = symbol.space;
  return symbol.dynamic_shared ? special(Special::dynamic_base64) : constant(symbol.value, 8);
}

u32 Decoder::local_offset(const Arg &a)
{
  const auto it = frame->local.find(a.name);
  if (it == frame->local.end()) throw Unsupported{"the parameter " + a.name};
  return it->second;
}

void Decoder::set_guard(Inst &i)
{
  if (s->guard.empty()) return;
  i.guard = reg(s->guard).offset;
  i.guard_negated = s->guard_negated;
}

/* --- control flow --- */

void Decoder::emit(const Inst &i)
{
  k.code.push_back(i);
}

void Decoder::jump(const std::string &label, bool table)
{
  frame->jumps.push_back({here(), label, s->scope, table});
}

void Decoder::leave()
{
  frame->returns.push_back(here());
}

/* Parameters are local memory that caller and callee share. */
void Decoder::call(const Inst &guard, const Arg &name, const std::vector<Arg> &args, const std::vector<Arg> &results)
{
  const auto callee = module.functions.find(name.name);
  if (callee == module.functions.end()) throw Unsupported{"a call of " + name.name};
  if (depth == 32) throw Unsupported{"recursion"};
  Frame inner(*callee->second, frame);
  for (size_t n = 0; n < args.size(); n++) inner.local[callee->second->params[n].name] = local_offset(args[n]);
  for (size_t n = 0; n < results.size(); n++) inner.local[callee->second->results[n].name] = local_offset(results[n]);

  const size_t skip = here();
  if (guard.guard != Inst::no_guard) {
    Inst over = guard;
    over.flow = Flow::branch;
    over.guard_negated = !guard.guard_negated;
    emit(over);
  }
  const Statement *const statement_here = s;
  Frame *const frame_here = frame;
  depth++;
  function(inner);
  depth--;
  s = statement_here;
  frame = frame_here;
  if (guard.guard != Inst::no_guard) k.code[skip].target = (u32)here();
}

void Decoder::resolve(Frame &f)
{
  auto find = [&f](const auto &by_scope, int scope, const std::string &name) {
    for (; scope >= 0; scope = f.function->scopes[(size_t)scope].parent) {
      const auto it = by_scope[(size_t)scope].find(name);
      if (it != by_scope[(size_t)scope].end()) return it->second;
    }
    throw std::runtime_error("PTX of " + f.function->name + ": no label " + name);
  };
  for (const Frame::Jump &j : f.jumps) {
    if (!j.table) {
      k.code[j.at].target = find(f.labels, j.scope, j.label);
      continue;
    }
    const Statement *targets = find(f.tables, j.scope, j.label);
    for (const Arg &a : targets->args) k.code[j.at].table.push_back(find(f.labels, targets->scope, a.name));
  }
  for (size_t at : f.returns) k.code[at].target = (u32)here();
}

/* --- a function --- */

void Decoder::place_locals(Frame &f)
{
  std::unordered_map<std::string, u64> bytes; /* { } after { } may declare the same name: the largest counts */
  for (const Variable &v : f.function->locals) {
    if (v.space == ".shared") {
      place_shared(v);
    } else {
      u64 &n = bytes[v.name];
      n = std::max(n, v.size);
    }
  }
  for (const Variable &v : f.function->locals) {
    if (v.space == ".shared" || f.local.count(v.name)) continue;
    const u32 align = std::max<u32>(v.align, 8);
    k.local_bytes = (k.local_bytes + align - 1) / align * align;
    f.local[v.name] = k.local_bytes;
    k.local_bytes += (u32)bytes[v.name];
  }
}

std::vector<std::string> split(const std::string &op)
{
  std::vector<std::string> words;
  for (size_t p = 0, q; p <= op.size(); p = q + 1) {
    q = std::min(op.find('.', p), op.size());
    words.push_back(op.substr(p, q - p));
  }
  return words;
}

const std::unordered_map<std::string, Decode> &decoders()
{
  static std::unordered_map<std::string, Decode> all;
  if (!all.empty()) return all;
  for (const Opcode *table : {integer_opcodes, float_opcodes, convert_opcodes, predicate_opcodes, move_opcodes,
                              memory_opcodes, flow_opcodes, warp_opcodes, matrix_opcodes, async_opcodes, wgmma_opcodes})
    for (; table->name != nullptr; table++) all[table->name] = table->decode;
  return all;
}

static void unsupported(Warp &w, const Inst &i, u32 mask)
{
  fault(w, i, first_lane(mask), fault_unsupported, "the emulator cannot execute this instruction");
}

void Decoder::report(const Unsupported &u)
{
  const auto file = module.files.find(s->file);
  if (!reported.insert(s->op).second) return;
  fprintf(stderr, "cudaemu: %s:%d: the emulator does not know %s in '%s' (a fault if it is executed), kernel %s\n",
          file == module.files.end() ? "?" : file->second.c_str(), s->line, u.why.c_str(), to_text(*s).c_str(),
          k.function->name.c_str());
}

void Decoder::statement()
{
  Inst i;
  i.statement = s;
  words = split(s->op);
  try {
    set_guard(i);
    const auto decode = decoders().find(words[0]);
    if (decode == decoders().end()) throw Unsupported{"the instruction"};
    const size_t before = here();
    decode->second(*this, i);
    if (i.run != nullptr || i.flow == Flow::exit || i.flow == Flow::branch || i.flow == Flow::branch_table) {
      emit(i);
    } else if (here() == before && words[0] != "call") {
      throw Unsupported{"the type"};
    }
  } catch (const Unsupported &u) {
    report(u);
    k.unsupported++;
    i.flow = Flow::plain;
    i.run = unsupported;
    emit(i);
  }
}

void Decoder::function(Frame &f)
{
  frame = &f;
  place_locals(f);
  for (const Statement &one : f.function->body) {
    s = &one;
    if (one.label.empty()) {
      statement();
    } else if (one.args.empty()) {
      f.labels[(size_t)one.scope][one.label] = (u32)here();
    } else {
      f.tables[(size_t)one.scope][one.label] = &one;
    }
  }
  resolve(f);
}

std::unique_ptr<Kernel> compile(Module &module, const Function &function)
{
  auto k = std::make_unique<Kernel>();
  k->module = &module;
  k->function = &function;
  u32 offset = 0;
  for (const Variable &p : function.params) {
    offset = (offset + p.align - 1) / p.align * p.align;
    k->param_offset[p.name] = offset;
    k->params.push_back({offset, (u32)p.size});
    offset += (u32)p.size;
  }
  k->param_bytes = offset;

  Decoder decoder(*k, module);
  Frame frame(function, nullptr);
  decoder.function(frame);
  static const Statement end = [] {
    Statement s;
    s.op = "ret";
    return s;
  }();
  Inst last;
  last.flow = Flow::exit;
  last.statement = &end;
  decoder.emit(last);
  if (k->static_shared) k->static_shared += 64;
  k->local_bytes = (k->local_bytes + 15) & ~15u;
  return k;
}
} // namespace emu
