export const OTHER_DRILLS = [];
