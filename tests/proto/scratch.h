/* Temporary directory for a test with sockets; the path is short enough for any socket path. */
#ifndef GP_SCRATCH_H
#define GP_SCRATCH_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/leftovers.h"

static char scratch_dir[] = "/tmp/gp-test-XXXXXX";

__attribute__((constructor)) static void scratch_make(void)
{
    if (leftovers_make(scratch_dir) == NULL) {
        perror("mkdtemp");
        exit(1);
    }
}

__attribute__((destructor)) static void scratch_remove(void)
{
    leftovers_clear(scratch_dir);
}

/* Return the path of `name` in the scratch directory. The last four results stay valid. */
__attribute__((unused)) static const char *scratch_path(const char *name)
{
    static char paths[4][512];
    static unsigned next;

    char *path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", scratch_dir, name);
    return path;
}

/* Return the number of entries in the scratch directory, hidden ones excluded. */
__attribute__((unused)) static int scratch_entries(void)
{
    DIR *dir = opendir(scratch_dir);
    int count = 0;

    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;)
        count += entry->d_name[0] != '.';
    if (dir != NULL)
        closedir(dir);
    return count;
}

#endif
