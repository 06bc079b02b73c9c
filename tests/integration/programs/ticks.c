// Calls tick() as often as each line of standard input says, and hidden() once
// for each line; answers with an empty line.
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) unsigned
tick(unsigned i)
{
    __asm__ volatile("");
    return i + 1;
}

static __attribute__((noinline)) unsigned
hidden(unsigned i)
{
    __asm__ volatile("");
    return i + 2;
}

int
main(void)
{
    char line[32];
    unsigned sum = 0;
    while (fgets(line, sizeof line, stdin) != NULL) {
        for (long left = atol(line); left > 0; left--)
            sum = tick(sum);
        sum = hidden(sum);
        puts("");
        fflush(stdout);
    }
    return (int)(sum & 1);
}
