/* Fuzz the IDX reader. With GP_FUZZER, this is a libFuzzer target. Otherwise it replays the files
 * in a given directory as a plain test. Crashes, sanitizer reports and aborts are failures;
 * returned errors are not. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/data/format/idx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Check that an accepted file matches the header, and that all data is readable. */
static void accepted_check(const gp_idx *idx, uint32_t rank)
{
    uint64_t product = 1, sum = 0;

    for (uint32_t i = 0; i < idx->rank; i++)
        product *= idx->dim[i];
    if (idx->rank != rank || product != idx->bytes)
        abort();
    for (size_t i = 0; i < idx->bytes; i++)
        sum += idx->data[i];
    if (sum > 255 * product)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    for (uint32_t rank = 1; rank <= 3; rank += 2) {
        int64_t live = gp_alloc_get_stats().live;
        int fd = memfd_create("fuzz", MFD_CLOEXEC);
        gp_error err = { GP_OK, "" };
        gp_idx idx;

        if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes || lseek(fd, 0, SEEK_SET) != 0)
            abort();
        if (gp_idx_read_fd(&idx, fd, "input", rank, &err) == GP_OK) {
            accepted_check(&idx, rank);
            gp_idx_deinit(&idx);
        } else if (err.code == GP_OK || err.message[0] == '\0') {
            abort(); /* an error must have a message */
        }
        if (gp_alloc_get_stats().live != live)
            abort();
    }
    return 0;
}

#ifndef GP_FUZZER
static int file_replay(const char *directory, const char *name)
{
    static uint8_t data[1 << 20];
    char path[512];
    FILE *file;
    size_t bytes;

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    file = fopen(path, "rb");
    if (file == NULL)
        return 0;
    bytes = fread(data, 1, sizeof(data), file);
    fclose(file);
    printf("%s\n", name); /* after a crash, the last name printed is the input */
    fflush(stdout);
    LLVMFuzzerTestOneInput(data, bytes);
    return 1;
}

int main(int count, char **arguments)
{
    DIR *directory = count == 2 ? opendir(arguments[1]) : NULL;
    struct dirent *entry;
    int replayed = 0;

    if (directory == NULL) {
        fprintf(stderr, "usage: %s DIRECTORY\n", arguments[0]);
        return 2;
    }
    while ((entry = readdir(directory)) != NULL)
        if (entry->d_name[0] != '.')
            replayed += file_replay(arguments[1], entry->d_name);
    closedir(directory);
    printf("%d files replayed\n", replayed);
    return replayed == 0;
}
#endif
