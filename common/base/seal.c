#include "common/base/seal.h"

#include <errno.h>
#include <fcntl.h>

#include "common/base/clock.h"

enum { AGAIN_MS = 10, AGAIN_MAX = 100 };

int gp_seal(int fd, int seals)
{
    int sealed = fcntl(fd, F_ADD_SEALS, seals);

    for (int again = 0; sealed != 0 && errno == EBUSY && again < AGAIN_MAX; again++) {
        gp_sleep_ms(AGAIN_MS);
        sealed = fcntl(fd, F_ADD_SEALS, seals);
    }
    return sealed;
}
