/* tests/cudaemu/float.cc - arithmetic of f32, f64 and the 16-bit types. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "alu.h"
#include <cmath>

namespace emu
{
namespace
{
template <class T> T add(T a, T b)
{
  return a + b;
}

template <class T> T sub(T a, T b)
{
  return a - b;
}

template <class T> T mul(T a, T b)
{
  return a * b;
}

template <class T> T divide(T a, T b)
{
  return a / b;
}

/* Of a number and NaN, the number. */
template <class T> T least(T a, T b)
{
  if (a != a) return b;
  return b != b || a < b || (a == b && std::signbit(a)) ? a : b;
}

template <class T> T greatest(T a, T b)
{
  if (a != a) return b;
  return b != b || a > b || (a == b && !std::signbit(a)) ? a : b;
}

/* .NaN: NaN if either is. */
template <class T> T least_or_nan(T a, T b)
{
  return a != a || b != b ? (T)NAN : least(a, b);
}

template <class T> T greatest_or_nan(T a, T b)
{
  return a != a || b != b ? (T)NAN : greatest(a, b);
}

template <class T> T negate(T a)
{
  return -a;
}

template <class T> T absolute(T a)
{
  return std::fabs(a);
}

template <class T> T multiply_add(T a, T b, T c)
{
  if constexpr (sizeof(T) == 4) {
    return fused(a, b, c);
  } else {
    return std::fma(a, b, c);
  }
}

template <class T> T reciprocal(T a)
{
  return (T)1 / a;
}

template <class T> T square_root(T a)
{
  return std::sqrt(a);
}

template <class T> T reciprocal_root(T a)
{
  return (T)1 / std::sqrt(a);
}

template <class T> T with_sign_of(T sign, T magnitude)
{
  return std::copysign(magnitude, sign);
}

float power_of_2(float a)
{
  return exp2f(a);
}

float log_of_2(float a)
{
  return log2f(a);
}

float sine(float a)
{
  return sinf(a);
}

float cosine(float a)
{
  return cosf(a);
}

float tangent_h(float a)
{
  return tanhf(a);
}

/* a b + c rounded towards zero, down or up. */
enum Rounding { to_nearest, to_zero, down, up };
template <Rounding R> float cut(double x)
{
  const float f = (float)x;
  if (R == to_zero && std::fabs((double)f) > std::fabs(x)) return std::nextafterf(f, 0);
  if (R == down && (double)f > x) return std::nextafterf(f, -INFINITY);
  return R == up && (double)f < x ? std::nextafterf(f, INFINITY) : f;
}

template <Rounding R> float directed(float a, float b, float c)
{
  const double x = fused_to_odd(a, b, c);
  if (x == 0 && R == down) return std::signbit((double)a * b) || std::signbit(c) || c != 0 ? -0.f : 0.f;
  return cut<R>(x);
}

template <Rounding R> float add_directed(float a, float b)
{
  return directed<R>(a, 1, b);
}

template <Rounding R> float sub_directed(float a, float b)
{
  return directed<R>(a, 1, -b);
}

template <Rounding R> float mul_directed(float a, float b)
{
  return cut<R>((double)a * b); /* the product is exact */
}

/* The handler of add, sub, mul or fma in another rounding; nullptr: to nearest. */
template <Rounding R> Handler in_rounding(const std::string &o)
{
  if (o == "add") return map2<float, add_directed<R>>;
  if (o == "sub") return map2<float, sub_directed<R>>;
  if (o == "mul") return map2<float, mul_directed<R>>;
  if (o == "fma" || o == "mad") return map3<float, directed<R>>;
  throw Unsupported{"the rounding"};
}

Handler rounded(const Decoder &x)
{
  const bool z = x.has("rz"), m = x.has("rm"), p = x.has("rp");
  if (!z && !m && !p) return nullptr;
  if (x.type() != Type::f32) throw Unsupported{"the rounding"};
  return z ? in_rounding<to_zero>(x.words[0]) : m ? in_rounding<down>(x.words[0]) : in_rounding<up>(x.words[0]);
}

Handler binary(const Decoder &x)
{
  const std::string &o = x.words[0];
  const Type t = x.type();
  const bool nan = x.has("NaN");
  if (x.has("xorsign")) throw Unsupported{".xorsign"};
  if (o == "add") return BY_FLOAT(t, map2, add);
  if (o == "sub") return BY_FLOAT(t, map2, sub);
  if (o == "mul") return BY_FLOAT(t, map2, mul);
  if (o == "div") return BY_FLOAT(t, map2, divide);
  if (o == "min") return nan ? BY_FLOAT(t, map2, least_or_nan) : BY_FLOAT(t, map2, least);
  if (o == "max") return nan ? BY_FLOAT(t, map2, greatest_or_nan) : BY_FLOAT(t, map2, greatest);
  if (o == "copysign") return BY_FLOAT(t, map2, with_sign_of);
  return nullptr;
}

Handler unary(const Decoder &x)
{
  const std::string &o = x.words[0];
  const Type t = x.type();
  if (o == "neg") return BY_FLOAT(t, map1, negate);
  if (o == "abs") return BY_FLOAT(t, map1, absolute);
  if (o == "rcp") return BY_FLOAT(t, map1, reciprocal);
  if (o == "sqrt") return BY_FLOAT(t, map1, square_root);
  if (o == "rsqrt") return BY_FLOAT(t, map1, reciprocal_root);
  if (t != Type::f32) return nullptr;
  if (o == "ex2") return map1<float, power_of_2>;
  if (o == "lg2") return map1<float, log_of_2>;
  if (o == "sin") return map1<float, sine>;
  if (o == "cos") return map1<float, cosine>;
  if (o == "tanh") return map1<float, tangent_h>;
  return nullptr;
}

/* --- 16-bit types: in double, rounded once --- */

double negate_half(double a, double, double)
{
  return -a;
}

double absolute_half(double a, double, double)
{
  return std::fabs(a);
}

struct HalfOperation {
  int sources;
  double (*of)(double, double, double);
};

const std::unordered_map<std::string, HalfOperation> half_operations = {
    {"add", {2, [](double a, double b, double) { return a + b; }}},
    {"sub", {2, [](double a, double b, double) { return a - b; }}},
    {"mul", {2, [](double a, double b, double) { return a * b; }}},
    {"fma", {3, [](double a, double b, double c) { return std::fma(a, b, c); }}},
    {"min", {2, [](double a, double b, double) { return least(a, b); }}},
    {"max", {2, [](double a, double b, double) { return greatest(a, b); }}},
    {"min.NaN", {2, [](double a, double b, double) { return least_or_nan(a, b); }}},
    {"max.NaN", {2, [](double a, double b, double) { return greatest_or_nan(a, b); }}},
    {"neg", {1, negate_half}},
    {"abs", {1, absolute_half}},
    {"ex2", {1, [](double a, double, double) { return std::exp2(a); }}},
    {"tanh", {1, [](double a, double, double) { return std::tanh(a); }}},
};

u32 half_result(const Inst &i, double (*of)(double, double, double), u32 a, u32 b, u32 c, int k)
{
  const bool bf = i.aux & 1;
  if (of == negate_half) return (a >> 16 * k & 0xffff) ^ 0x8000; /* NaN keeps its bits */
  if (of == absolute_half) return a >> 16 * k & 0x7fff;
  double r = of(half_of(a, k, bf), half_of(b, k, bf), half_of(c, k, bf));
  if (i.flags & saturate) r = saturated(r);
  if ((i.flags & relu) && r < 0) r = 0;
  return to_half(r, bf);
}

/* aux: bit 0 bf16, bit 1 packed; the operation is the host address of its function. */
void half_arithmetic(Warp &w, const Inst &i, u32 mask)
{
  const auto of = reinterpret_cast<double (*)(double, double, double)>(i.offset);
  FOR_LANES(l, mask)
  {
    const u32 a = lanes<u32>(w, i.a)[l], b = i.b.size ? lanes<u32>(w, i.b)[l] : 0,
              c = i.c.size ? lanes<u32>(w, i.c)[l] : 0;
    u32 r = half_result(i, of, a, b, c, 0);
    if (i.aux & 2) r |= half_result(i, of, a, b, c, 1) << 16;
    lanes<u32>(w, i.d)[l] = r;
  }
}

void decode_float_or_half(Decoder &x, Inst &i)
{
  if (!decode_half(x, i)) decode_float(x, i);
}
} // namespace

bool decode_half(Decoder &x, Inst &i)
{
  const Type t = x.type();
  if (!is_half(t)) return false;
  const auto it = half_operations.find(x.words[0] + (x.has("NaN") ? ".NaN" : ""));
  if (it == half_operations.end()) throw Unsupported{"the type"};
  simple(x, i, it->second.sources, half_arithmetic);
  i.offset = reinterpret_cast<s64>(it->second.of);
  i.aux = (is_bf16(t) ? 1 : 0) | (is_packed(t) ? 2 : 0);
  return true;
}

bool decode_float(Decoder &x, Inst &i)
{
  const Type t = x.type();
  if (t != Type::f32 && t != Type::f64) return false;
  const std::string &o = x.words[0];
  const Handler one = unary(x), two = binary(x), other = one ? nullptr : rounded(x);
  if (o == "fma" || o == "mad") {
    simple(x, i, 3, other ? other : BY_FLOAT(t, map3, multiply_add));
  } else if (one) {
    simple(x, i, 1, one);
  } else {
    simple(x, i, 2, other ? other : two);
  }
  return true;
}

const Opcode float_opcodes[] = {{"fma", decode_float_or_half},
                                {"ex2", decode_float_or_half},
                                {"tanh", decode_float_or_half},
                                {"copysign", decode_float_or_half},
                                {"rcp", decode_float_or_half},
                                {"sqrt", decode_float_or_half},
                                {"rsqrt", decode_float_or_half},
                                {"lg2", decode_float_or_half},
                                {"sin", decode_float_or_half},
                                {"cos", decode_float_or_half},
                                {nullptr, nullptr}};
} // namespace emu
