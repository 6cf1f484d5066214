/* Temporary test directory below /tmp, removed with all files in it when the test program ends. */
#ifndef TEST_FOLDER_H
#define TEST_FOLDER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/leftovers.h"

static char folder[64];

/* Remove the directory, if there is one. */
__attribute__((destructor)) static void folder_remove(void)
{
    char command[160];

    if (folder[0] == '\0')
        return;
    snprintf(command, sizeof(command), "chmod -R u+rwx '%s'; rm -rf '%s'", folder, folder);
    if (system(command) != 0)
        abort();
    folder[0] = '\0';
}

/* Make an empty directory in place of the previous one. */
static inline void folder_make(void)
{
    folder_remove();
    strcpy(folder, "/tmp/gradpool-test-XXXXXX");
    if (leftovers_make(folder) == NULL)
        abort();
}

/* Return the path for a name in the directory. The four latest results remain valid. */
static inline const char *in_folder(const char *name)
{
    static char path[4][400];
    static int turn;

    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", folder, name);
    return path[turn];
}

static inline void file_put(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "w");

    if (file == NULL || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0)
        abort();
}

static inline size_t file_get(const char *path, void *data, size_t bytes_max)
{
    FILE *file = fopen(path, "r");
    size_t bytes;

    if (file == NULL)
        abort();
    bytes = fread(data, 1, bytes_max, file);
    fclose(file);
    return bytes;
}

#endif
