/* image_index.h -- lists of images kept on disk, so that a folder of a million files is listed once.
 *
 * A list is taken for valid as long as every directory that was read has the time of change and the inode that it had.
 * It is only kept if they were all older than two seconds then: a file that is added within the same tick of the clock
 * would not be seen.  An index that is damaged, or of another version, is as good as none. */
#ifndef GP_IMAGE_INDEX_H
#define GP_IMAGE_INDEX_H

#include "common/data/image_list.h"

enum { GP_IMAGE_INDEX_COUNT_MIN = 20000 }; /* shorter lists are made faster than a file is written */

/* The list for a source and role, if a valid one is kept; else false, and the list is as gp_image_list_init() leaves it. */
bool gp_image_index_load(gp_image_list *list, const char *directory, gp_data_role role);

/* Keep the list, if it is long enough and can be: nothing depends on it, so there is no error. */
void gp_image_index_save(const gp_image_list *list, const char *directory, gp_data_role role);

#endif
