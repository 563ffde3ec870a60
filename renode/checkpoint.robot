*** Comments ***
What was learned outlives resets and power cuts (docs/protocol.md, "Checkpoints"). The suite knows no model.

*** Settings ***
Resource                keywords.resource

*** Keywords ***
Checkpoint After Restart
    ${found}=                   Wait For Line On Uart    ^checkpoint (none|\\d+ of step \\d+)$    treatAsRegex=true
    Wait For Line On Uart       ready
    RETURN                      ${found.Groups[0]}

Save
    [Arguments]                 ${number}
    Ask                         save    ^ok save ${number}$

Learn
    [Documentation]    One step on a pattern, and none on records: a restart forgets these, and what they would teach.
    [Arguments]                 ${number}    ${label}
    Ask                         replay 0    ^(ok replay 0|err argument this firmware has no replay buffer.*)$
    Train On Pattern            ${number}    ${label}

Saved And Trained Further
    [Documentation]    Checkpoint 1 is of step 1, the trainables are of step 2.
    Boot
    Learn                       1    0
    Save                        1
    ${saved}=                   Trainables
    Learn                       2    1
    ${newer}=                   Trainables
    Should Not Be Equal         ${saved}    ${newer}
    RETURN                      ${saved}    ${newer}

Old Or New After A Power Cut
    [Arguments]                 ${operation}
    ${saved}    ${newer}=       Saved And Trained Further
    Execute Command             sysbus.flashController PowerFailsIn ${operation}
    Write Line To Uart          save    waitForEcho=false
    ${checkpoint}=              Checkpoint After Restart
    ${found}=                   Trainables
    ${complete}=                Create Dictionary    1 of step 1=${saved}    2 of step 2=${newer}
    Should Be Equal             ${found}    ${complete}[${checkpoint}]
    Learn                       3    1
    ${last}=                    Trainables
    Ask                         save    ^ok save \\d+$
    Execute Command             sysbus.resetAndClock PowerCycle
    Checkpoint After Restart
    ${again}=                   Trainables
    Should Be Equal             ${last}    ${again}
    RETURN                      ${checkpoint}

*** Test Cases ***
Without A Save A Power Cut Forgets
    Boot
    ${start}=                   Trainables
    Learn                       1    0
    Execute Command             sysbus.resetAndClock PowerCycle
    Wait For Line On Uart       ^start power$    treatAsRegex=true
    ${checkpoint}=              Checkpoint After Restart
    Should Be Equal             ${checkpoint}    none
    ${again}=                   Trainables
    Should Be Equal             ${start}    ${again}

What Was Saved Is There After A Reset And A Power Cut
    ${saved}    ${newer}=       Saved And Trained Further
    Execute Command             machine Reset
    Wait For Line On Uart       ^start pin$    treatAsRegex=true
    ${checkpoint}=              Checkpoint After Restart
    Should Be Equal             ${checkpoint}    1 of step 1
    ${found}=                   Trainables
    Should Be Equal             ${found}    ${saved}
    Learn                       2    1
    ${found}=                   Trainables
    Should Be Equal             ${found}    ${newer}
    Save                        2
    Execute Command             sysbus.resetAndClock PowerCycle
    Wait For Line On Uart       ^start power$    treatAsRegex=true
    ${checkpoint}=              Checkpoint After Restart
    Should Be Equal             ${checkpoint}    2 of step 2
    ${found}=                   Trainables
    Should Be Equal             ${found}    ${newer}

A Controlled Restart Saves First
    Boot
    Learn                       1    0
    ${learned}=                 Trainables
    Ask                         reboot    ^ok reboot$
    Wait For Line On Uart       ^start software$    treatAsRegex=true
    ${checkpoint}=              Checkpoint After Restart
    Should Be Equal             ${checkpoint}    1 of step 1
    ${found}=                   Trainables
    Should Be Equal             ${found}    ${learned}

Power Fails While The First Save Erases
    Boot
    ${start}=                   Trainables
    Learn                       1    0
    ${learned}=                 Trainables
    Execute Command             sysbus.flashController PowerFailsIn 1
    Write Line To Uart          save    waitForEcho=false
    ${checkpoint}=              Checkpoint After Restart
    Should Be Equal             ${checkpoint}    none
    ${found}=                   Trainables
    Should Be Equal             ${found}    ${start}
    Learn                       1    0
    Save                        1
    Execute Command             sysbus.resetAndClock PowerCycle
    ${checkpoint}=              Checkpoint After Restart
    Should Be Equal             ${checkpoint}    1 of step 1
    ${found}=                   Trainables
    Should Be Equal             ${found}    ${learned}

Power Fails At The First Word Of A Save
    ${checkpoint}=              Old Or New After A Power Cut    1
    Should Be Equal             ${checkpoint}    1 of step 1

Power Fails In The Midst Of A Save
    ${checkpoint}=              Old Or New After A Power Cut    20
    Should Be Equal             ${checkpoint}    1 of step 1

A Slot Is Erased Each Time It Is Forgotten
    [Documentation]    Where an erase does nothing, the words of an older checkpoint are in the way of the next one.
    Boot
    ${start}=                   Trainables
    FOR    ${label}    IN    0    1    0
        Train On Pattern            1    ${label}
        Save                        1
        Ask                         forget    ^ok forget$
    END
    Ask                         reset    ^ok reset$
    Learn                       2    1
    ${learned}=                 Trainables
    Save                        1
    Execute Command             machine Reset
    ${checkpoint}=              Checkpoint After Restart
    Should Be Equal             ${checkpoint}    1 of step 1
    ${found}=                   Trainables
    Should Be Equal             ${found}    ${learned}
    Should Not Be Equal         ${found}    ${start}

What Is Forgotten Is Gone
    Saved And Trained Further
    Ask                         forget    ^ok forget$
    Execute Command             machine Reset
    ${checkpoint}=              Checkpoint After Restart
    Should Be Equal             ${checkpoint}    none
