#include <functional>
#include <string>
#include <vector>
#include <cstdio>
#include <algorithm>
#define HOT volatile long s_=0; for (long i_=0;i_<1500000;i_++) s_+=i_; return s_
#define NI __attribute__((noinline))
namespace { struct Hidden { NI long run(int) const { HOT; } }; NI long anon_fn(const char*) { HOT; } }
namespace ns { template<class T, int N> struct Box { T v; 
 NI Box(T x); NI ~Box(); NI long operator()(int, double) const { HOT; } NI explicit operator bool() const { volatile long s_=0; for (long i_=0;i_<1500000;i_++) s_+=i_; return s_>0; }
 NI long operator[](int) { HOT; } NI long operator+(const Box&) { HOT; } NI long operator<(const Box&) { HOT; } NI operator std::string() const { volatile long s_=0; for (long i_=0;i_<1500000;i_++) s_+=i_; return std::to_string(s_);} NI long operator->*(int){HOT;} NI static long stat(T*, int(*)(int)) { HOT; } NI long vol() volatile {HOT;} NI long rr() && {HOT;} };
 template<class T,int N> Box<T,N>::Box(T x):v(x){ volatile long s_=0; for (long i_=0;i_<1500000;i_++) s_+=i_; }
 template<class T,int N> Box<T,N>::~Box(){ volatile long s_=0; for (long i_=0;i_<1500000;i_++) s_+=i_; }
}
template<class F> NI long apply(F f) { volatile long s_=0; for (long i_=0;i_<1500000;i_++) s_+=i_; return s_+f(3); }
template<class T> NI long tpl(T, std::vector<int>) { HOT; }
template<class... A> NI long var(A... a) { HOT; }
NI long fnptr(int (*)(int), void (*)(void(*)(int))) { HOT; }
NI int (*retfp(int))(int) { volatile long s_=0; for (long i_=0;i_<1500000;i_++) s_+=i_; return nullptr; }
template<class T> NI int (*retfpt(T))(int) { volatile long s_=0; for (long i_=0;i_<1500000;i_++) s_+=i_; return nullptr; }
template<int(*P)(int)> NI long nttp() { HOT; }
static int cb(int x){return x;}
NI long __attribute__((abi_tag("v2"))) tagged(int) { HOT; }
extern "C" NI long plainc(int) { HOT; }
extern "C" NI long my_isra_0(int) __asm__("plainc2.isra.0");
NI long my_isra_0(int) { HOT; }
NI long clonecpp(int) __asm__("_Z8clonecppi.constprop.0");
NI long clonecpp(int) { HOT; }
NI long coldcpp(int) __asm__("_Z7coldcppi.cold");
NI long coldcpp(int) { HOT; }
NI long partcpp(int) __asm__("_Z7partcppi.part.0.isra.3");
NI long partcpp(int) { HOT; }
NI long rustleg(int) __asm__("_ZN4core3ops8function6FnOnce9call_once17h0123456789abcdefE");
NI long rustleg(int) { HOT; }
NI long rustleg2(int) __asm__("_ZN71_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$core..clone..Clone$GT$5clone17hdeadbeefcafe1234E");
NI long rustleg2(int) { HOT; }
NI long rustleg3(int) __asm__("_ZN3foo3bar28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE.llvm.1234567");
NI long rustleg3(int) { HOT; }
NI long rustv0(int) __asm__("_RNvC6_123foo3bar");
NI long rustv0(int) { HOT; }
NI long rustv1(int) __asm__("_RNvMNtCs1234_7mycrate3fooNtB2_3Foo3baz");
NI long rustv1(int) { HOT; }
NI long rustv2(int) __asm__("_RINvNtC3std3mem8align_ofNtNtC3std3mem12DiscriminantE");
NI long rustv2(int) { HOT; }
NI long badz(int) __asm__("_Znotmangled");
NI long badz(int) { HOT; }
NI long quest(int) __asm__("_Z3f%ooi");
struct V { virtual long f(int); virtual ~V(){} }; 
NI long V::f(int) { HOT; }
struct W { int pad; virtual long g(){return 0;} virtual ~W(){} };
struct X : W, V { long f(int) override; };
NI long X::f(int) { HOT; }
NI long operator""_lit(unsigned long long) { HOT; }
NI long operator<<(V&, int) { HOT; }
NI void* operator new(size_t, int) { volatile long s_=0; for (long i_=0;i_<1500000;i_++) s_+=i_; return 0; }
template<class T> NI long constexpr_if(T) requires true;
int main() {
  long r=0; ns::Box<int,3> b(1); ns::Box<std::vector<std::string>,-1> b2({});
  r+=b(1,2.0); r+=(bool)b; r+=b[1]; r+=b+b; r+=b<b; r+=std::string(b).size(); r+=b->*3; r+=ns::Box<int,3>::stat(nullptr,nullptr); r+=b2(1,1); r+=b.vol(); r+=std::move(b).rr();
  r+=apply([](int x){HOT;}); r+=apply([&](auto x){HOT;}); r+=apply(cb);
  r+=apply(std::function<long(int)>([&r](int x) NI {HOT;}));
  r+=tpl(3,{}); r+=var(1,2.0,"x"); r+=fnptr(0,0); r+=(long)retfp(1); r+=(long)retfpt(1); r+=nttp<cb>(); r+=tagged(1); r+=plainc(1); r+=my_isra_0(1); r+=clonecpp(1); r+=coldcpp(1); r+=partcpp(1); r+=rustleg(1); r+=rustleg2(1); r+=rustleg3(1); r+=rustv0(1); r+=rustv1(1);r+=rustv2(1); r+=badz(1);
  V v; r+=v.f(1); X x; V*p=&x; r+=p->f(1); r+=3_lit; r+=v<<3; r+=(long)(operator new(3,3));
  Hidden h; r+=h.run(1); r+=anon_fn("");
  static auto gl=[](long a, const std::string& s) NI {HOT;}; r+=gl(1,"");
  struct Local { NI long m(int) {HOT;} } l; r+=l.m(1);
  auto outer=[&](int a) NI { auto inner=[&](double) NI {HOT;}; return inner(2.0); }; r+=outer(1);
  printf("%ld\n", r);
}
