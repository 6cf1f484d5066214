/* crash.c: crashes while it is loaded. */
#include <gradpool/task.h>

__attribute__((constructor)) static void die(void)
{
    __builtin_trap();
}
