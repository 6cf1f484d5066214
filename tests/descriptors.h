/* descriptors.h: the number of descriptors of a process, including "." and "..", for
 * comparisons. */
#ifndef GP_TEST_DESCRIPTORS_H
#define GP_TEST_DESCRIPTORS_H

#include <dirent.h>
#include <stdio.h>
#include <sys/types.h>

static inline int descriptors_of(pid_t pid)
{
    char path[40];
    int count = 0;
    DIR *folder;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    folder = opendir(path);
    while (folder != NULL && readdir(folder) != NULL)
        count++;
    if (folder != NULL)
        closedir(folder);
    return count;
}

#endif
