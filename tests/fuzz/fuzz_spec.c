/* fuzz_spec.c: hostile command specs. An accepted spec is complete and encodes to the same
 * bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "proto/local/runner_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Read every byte of the spec. */
static void accepted_check(const gp_runner_spec *spec, const uint8_t *data, size_t bytes)
{
    int again;
    uint32_t again_bytes;
    uint8_t *copy = malloc(bytes);

    if (copy == NULL || spec->directory[0] != '/' || spec->arguments[0] == NULL || spec->mask > 0777 ||
        gp_runner_spec_write(&again, &again_bytes, spec, NULL) != GP_OK || again_bytes != bytes ||
        pread(again, copy, bytes, 0) != (ssize_t)bytes || memcmp(copy, data, bytes) != 0)
        abort();
    close(again);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    int64_t live = gp_alloc_get_stats().live;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    gp_runner_spec spec;
    void *memory;
    gp_error err;

    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes)
        abort();
    if (gp_runner_spec_read(&spec, &memory, fd, (uint32_t)bytes, &err) == GP_OK) {
        accepted_check(&spec, data, bytes);
        gp_free(memory);
    } else if (err.message[0] == '\0') {
        abort();
    }
    close(fd);
    if (gp_alloc_get_stats().live != live)
        abort();
    return 0;
}
