// SPDX-License-Identifier: Apache-2.0
// Names without parameters, and mangled names that are broken or hostile.
#include "opd/demangle.h"
#include "t.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static char name[OPD_DEMANGLE_MAX];

// An allocation that the limit refuses is part of a test.
const char *__asan_default_options(void);
const char *
__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static const char *
demangled(const char *mangled)
{
    long length = opd_demangle(mangled, name, sizeof name);
    if (length < 0)
        return mangled;
    CHECK((size_t)length == strlen(name));
    return name;
}

#define READS(mangled, expected)                                                                   \
    do {                                                                                           \
        if (strcmp(demangled(mangled), expected) != 0) {                                           \
            fprintf(stderr, "%s\n  reads %s\n", mangled, demangled(mangled));                      \
            CHECK(strcmp(demangled(mangled), expected) == 0);                                      \
        }                                                                                          \
    } while (0)

static void
test_where_the_name_ends(void)
{
    static const struct {
        const char *mangled, *cut;
    } cases[] = {
        {"_Z3fooi", "_Z3foo"},
        {"_ZNK2ns1C3getEv", "_ZN2ns1C3getE"},
        {"_ZNKR2ns1CIiE3getIcEEvT_", "_ZN2ns1CIiE3getIcEE"},
        {"_Z5applyIZ4mainEUliE_EvT_", "_Z5applyIZ4mainEUliE_E"},
        {"_ZZ4mainENKUliE_clEi", "_ZZ4mainENUliE_clE"},
        {"_Z7coldcppi.cold", "_Z7coldcpp"},
        {"_ZTV3Foo", "_ZTV3Foo"},
        {"_ZThn16_N1X1fEi", "_ZThn16_N1X1fEi"},
        {"_Z1fILi3EEvv", "_Z1fILi3EE"},
        {"_ZStlsISt11char_traitsIcEERSt13basic_ostreamIcT_ES5_PKc", "_ZStlsISt11char_traitsIcEE"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK(opd_demangle_cpp_name(cases[i].mangled, name, sizeof name) > 0);
        CHECK(strcmp(name, cases[i].cut) == 0);
    }
    CHECK(opd_demangle_cpp_name("_Z", name, sizeof name) == -EINVAL);
    CHECK(opd_demangle_cpp_name("_Z9short", name, sizeof name) == -EINVAL);
    CHECK(opd_demangle_cpp_name("_Z3fooi", name, 3) == -E2BIG);
}

static void
test_cpp(void)
{
    if (opd_demangle("_Z3fooi", name, sizeof name) == -ENOSYS) {
        printf("no libstdc++ here: C++ names stay raw\n");
        READS("_Z3fooi", "_Z3fooi");
        return;
    }
    READS("_Z3fooi", "foo");
    READS("_ZNK2ns3BoxIiLi3EEclEid", "ns::Box<int, 3>::operator()");
    READS("_ZNK2ns3BoxIiLi3EEcvbEv", "ns::Box<int, 3>::operator bool");
    READS("_ZN12_GLOBAL__N_17anon_fnEPKc", "(anonymous namespace)::anon_fn");
    READS("_Z5applyIZ4mainEUliE_ElT_", "apply<main::{lambda(int)#1}>");
    READS("_ZZ4mainENKUliE1_clEi", "main::{lambda(int)#3}::operator()");
    READS("_Z6retfptIiEPFiiET_", "retfpt<int>");
    READS("_Z7coldcppi.cold", "coldcpp");
    READS("_Z7partcppi.part.0.isra.3", "partcpp");
    READS("_Z6taggedB2v2i", "tagged[abi:v2]");
    READS("plain.isra.0", "plain.isra.0");
    READS("_Znotmangled", "_Znotmangled");
}

static void
test_rust_legacy(void)
{
    READS("_ZN4core3ops8function6FnOnce9call_once17h0123456789abcdefE",
          "core::ops::function::FnOnce::call_once");
    READS("_ZN71_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$core..clone..Clone$GT$5clone"
          "17hdeadbeefcafe1234E",
          "_ZN71_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$core..clone..Clone$GT$5clone"
          "17hdeadbeefcafe1234E"); // a wrong length
    READS("_ZN63_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$core..clone..Clone$GT$5clone"
          "17hdeadbeefcafe1234E.llvm.123",
          "<alloc::vec::Vec<T> as core::clone::Clone>::clone");
    READS("_ZN3foo3bar28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE", "foo::bar::{{closure}}");
}

static void
test_rust_v0(void)
{
    READS("_RNvC6_123foo3bar", "123foo::bar");
    READS("_RNvMNtCs1234_7mycrate3fooNtB2_3Foo3baz", "<mycrate::foo::Foo>::baz");
    READS("_RINvNtC3std3mem8align_ofNtNtC3std3mem12DiscriminantE",
          "std::mem::align_of::<std::mem::Discriminant>");
    READS("_RNCNvC4test4main0", "test::main::{closure#0}");
    READS("_RNCNvC4test4mains_0", "test::main::{closure#1}");
    READS("_RNvXs_C4testNtB4_3FooNtB4_3Bar3baz", "<test::Foo as test::Bar>::baz");
    READS("_RINvC4test3fooRDG_INtC4core2FnTRL0_hEEp6OutputuEL_E",
          "test::foo::<&dyn for<'a> core::Fn<(&'a u8,), Output = ()>>");
    READS("_RINvC4test3fooAhj4_FUKChEmE",
          "test::foo::<[u8; 4], unsafe extern \"C\" fn(u8) -> u32>");
    READS("_RINvC4test3fooKb1_Kc61_Kln5_E", "test::foo::<true, 'a', -5>");
    READS("_RNvC4testu8gdel_5qa", "test::gödel");
    READS("_RNvC4test3foo.llvm.99", "test::foo");
    READS("_RNvC4test3fooC3bar", "test::foo");
    READS("_Rubbish", "_Rubbish");
    READS("_RNvC4test9foo", "_RNvC4test9foo");
    READS("_RB_", "_RB_");
}

// Names that grow or nest without end are refused in bounded time and space.
static void
test_hostile_names(void)
{
    static char deep[20000], wide[4096];
    strcpy(deep, "_Z1f");
    for (size_t i = 4; i < 8000; i++)
        deep[i] = 'P';
    CHECK(opd_demangle(deep, name, sizeof name) < 0 || strcmp(name, "f") == 0);
    memset(deep + 2, 'N', 7000);
    CHECK(opd_demangle(deep, name, sizeof name) < 0);
    strcpy(deep, "_Z1f");
    for (size_t i = 0; i < 1000; i++)
        strcat(deep, "I1a");
    CHECK(opd_demangle(deep, name, sizeof name) < 0);
    // f<a<int, int>, a<S1_, S1_>, …>: each argument twice as long as the one before.
    strcpy(wide, "_Z1fI1aIiiE");
    char doubled[] = "S0_IS1_S1_E";
    for (size_t i = 1; i < 34; i++) {
        if (i == 12) { // 2^11 in 33 references: printed, and too long for us
            char some[sizeof wide + 4];
            snprintf(some, sizeof some, "%sEvv", wide);
            CHECK(opd_demangle(some, name, sizeof name) == -E2BIG);
        }
        doubled[5] = doubled[8] = (char)(i < 10 ? '0' + i : 'A' + i - 10);
        strcat(wide, doubled);
    }
    strcat(wide, "Evv");
    CHECK(opd_demangle_cpp_name(wide, name, sizeof name) > 0);
    CHECK(opd_demangle(wide, name, sizeof name) == -E2BIG);
    strcpy(wide, "_RINvC1a1b");
    for (size_t i = 0; i < 40; i++)
        strcat(wide, "TB5_B5_");
    CHECK(opd_demangle(wide, name, sizeof name) < 0);
    memset(deep, 0, sizeof deep);
    strcpy(deep, "_RNvC1a");
    memset(deep + 7, 'I', 9000);
    CHECK(opd_demangle(deep, name, sizeof name) < 0);
}

int
main(void)
{
    RUN(test_where_the_name_ends);
    RUN(test_cpp);
    RUN(test_rust_legacy);
    RUN(test_rust_v0);
    RUN(test_hostile_names);
    return 0;
}
